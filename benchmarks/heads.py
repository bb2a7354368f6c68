"""Which head a gate should have: linear, one convolution or two, at equal multiply-accumulates, on validation data.

Gates alone are trained into a trained network, so that all heads read the same features. Each head is as wide as 2.5 %
of the network's multiply-accumulates allow. No test data is touched. `python -m benchmarks.heads` writes heads.json,
which decision 20 reports; what is there already is not repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

import penstock as ps
from benchmarks import doorbell
from penstock import demo
from penstock.datasets.loading import Data
from penstock.evaluation.outputs import collect_outputs
from penstock.gating.layers.config import HeadKind
from penstock.gating.layers.head import CONV_LAYERS, GATE_SHARE, conv_macs
from penstock.runtime.files import write_atomically
from reproduction.experiments.tasks import TASKS

RESULTS, RUNS = Path(__file__).parent / "heads.json", Path("runs/bench-heads")
SEEDS = (0, 1)
SPEECH = Path("../shared/data/speech_commands_v0.01_subset")


@dataclass(frozen=True)
class Case:
    """A data set, and a network that is trained on it or still to be."""

    model: nn.Module
    at: float | str
    train: Data
    judged: Data
    epochs: int
    batch_size: int
    trained: bool = False

    @property
    def example(self) -> Tensor:
        """A batch of two inputs."""
        first = self.train[0]
        return first[:2] if isinstance(self.train, tuple) else torch.stack([first[0]] * 2)

    def fitted(self, at: float | str, layer: ps.LayerConfig, folder: Path | None, seed: int) -> ps.GatedNetwork:
        """Return the network trained, or trained gates in it."""
        torch.manual_seed(seed)
        net = ps.gate(self.model, self.example, at=at, layer=layer)
        config = ps.FitConfig(self.epochs, self.batch_size, folder, seed, progress=False)
        ps.fit(net, self.train, config=config, train_only="gates" if at else "all", teacher=self.model if at else None)
        return net


def photographs() -> Case:
    """Return EfficientNet-Lite0 as `make doorbell` has fine-tuned it, and its calibration photographs."""
    data = doorbell.photos()
    plain, _ = doorbell.fitted(doorbell.efficientnet(), 0, "plain", at=0)
    return Case(_ungated(plain), doorbell.AT, data["train"], data["calibration"], 4, 64, trained=True)


def words() -> Case:
    """Return ten spoken words among others as MFCCs, and an Inception network."""
    data = TASKS["speech-commands"].data(SPEECH, "lite")
    torch.manual_seed(0)
    return Case(
        TASKS["speech-commands"].model(data.train[0].shape[1], 11, 32), 0.4, data.train, data.validation, 12, 64
    )


def exercises() -> Case:
    """Return the demo's network, and windows of people that it has not seen."""
    data = demo.data()
    torch.manual_seed(0)
    return Case(demo.network(), 0.4, data["train"], data["validation"], 10, 64)


CASES: dict[str, Callable[[], Case]] = {
    "photographs": photographs,
    "spoken words": words,
    "wrist": exercises,
}


def _ungated(net: ps.GatedNetwork) -> nn.Module:
    plain = ps.ungate(net)
    assert isinstance(plain, nn.Module)
    return plain.eval()


def width_of(head: HeadKind, feature: tuple[int, ...], macs: float) -> int:
    """Return the greatest width of a head with which a gate costs no more, but for its score."""
    if head == "linear":
        return int(macs / prod(feature))
    widths = (width for width in range(1, 513) if conv_macs(feature, width, CONV_LAYERS[head]) <= macs)
    return max(widths, default=1)


def measure(name: str) -> list[dict[str, Any]]:
    """Return a row for each head and seed on one data set."""
    case, rows = CASES[name](), []
    if not case.trained:
        plain = case.fitted(0, ps.LayerConfig(), RUNS / name, seed=0)
        case = Case(_ungated(plain), case.at, case.train, case.judged, case.epochs, case.batch_size, trained=True)
    (feature,) = (
        layer.feature for layer in ps.gate(case.model, case.example, at=case.at, layer=ps.LayerConfig("gate")).layers
    )
    for head in [head for head in get_args(HeadKind) if head == "linear" or head in CONV_LAYERS]:
        for seed in SEEDS:
            macs = sum(ps.gate(case.model, case.example, at=0).spec.macs)
            layer = ps.LayerConfig("gate", head=head, gate_width=width_of(head, feature, GATE_SHARE * macs))
            net = case.fitted(case.at, layer, None, seed)
            stopped = doorbell.stopped_at(collect_outputs(net, case.judged))
            (built,) = net.layers
            row = {"data": name, "head": head, "width": layer.gate_width, "seed": seed, "stopped": stopped}
            rows.append(row | {"gate_macs": built.gate_macs, "share_of_network": built.gate_macs / macs})
            print(f"  {rows[-1]}", flush=True)
    return rows


def main() -> None:
    """Measure the data sets that are not in heads.json yet."""
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    for name in CASES:
        if not any(row["data"] == name for row in rows):
            rows += measure(name)
            write_atomically(RESULTS, (json.dumps(rows, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
