"""All of CIFAR-10, an 8-block ResNet, and 5 % of the values, or as many bytes, across a cut at 40 %.

The plain network learns for 14 epochs; gated, it learns on for as many with the plain one as its teacher. As in the
paper, even classes are positives and odd ones the background. Which of the layers below is the figure's was chosen on
a tenth of the training data that was held out, in 5 epochs, never on the test data.

`python -m benchmarks.cifar held-out` makes that comparison; `python -m benchmarks.cifar SEED` trains for one seed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import penstock as ps
from benchmarks.doorbell import accuracy, stopped_at
from benchmarks.figures import Figure
from penstock.datasets.splits import Labelled
from penstock.evaluation.outputs import collect_outputs
from penstock.models.resnet import resnet8
from penstock.runtime.files import write_atomically
from reproduction.datasets.cifar10 import cifar10

SEEDS = (0, 1, 2)
EPOCHS, BATCH = 14, 256
WIDTH, AT, SHIFT = 16, 0.4, 4
BYTES = "1640 bytes"
"""410 of 8,192 values as float32."""
LAYERS = {
    "32 bits": ps.LayerConfig(keep=BYTES, bits=32),
    "8 bits": ps.LayerConfig(keep=BYTES, bits=8),
    "4 bits": ps.LayerConfig(keep=BYTES, bits=4),
    "values, 32 bits": ps.LayerConfig(keep=BYTES, bits=32, transform="none"),
    "values, 8 bits": ps.LayerConfig(keep=BYTES, bits=8, transform="none"),
    "values, 4 bits": ps.LayerConfig(keep=BYTES, bits=4, transform="none"),
}
CHOSEN = "4 bits"
RESULTS, RUNS = Path(__file__).parent / "cifar", Path("runs/bench-cifar")


@dataclass(frozen=True)
class Trial:
    """What is trained on, for how long, with which layers, and what the accuracy is judged on."""

    name: str
    train: Labelled
    judged: Labelled
    layers: tuple[str, ...] = (CHOSEN,)
    epochs: int = EPOCHS

    @classmethod
    def test(cls) -> Trial:
        """Return that of the figure."""
        data = cifar10()
        return cls("test", data.train, data.test)

    @classmethod
    def held_out(cls) -> Trial:
        """Return that on which the layer was chosen."""
        x, y = cifar10().train
        return cls("held-out", Labelled(x[5000:], y[5000:]), Labelled(x[:5000], y[:5000]), tuple(LAYERS), epochs=5)


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Images shifted by up to four pixels and mirrored at random."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = F.pad(x, (SHIFT,) * 4), y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        top, left, mirror = torch.randint(2 * SHIFT + 1, (3,)).tolist()
        x = self.x[i, :, top : top + 32, left : left + 32]
        return (x.flip(2) if mirror % 2 else x), self.y[i]


def fitted(model: nn.Module, trial: Trial, seed: int, part: str, **choices: Any) -> ps.GatedNetwork:
    """Return a trained network; a broken training goes on, a finished one is read.

    Args:
        choices: ``at``, ``layer`` and the ``teacher`` of `fit`.
    """
    at, layer = choices.pop("at", AT), choices.pop("layer", ps.LayerConfig())
    torch.manual_seed(seed)
    net = ps.gate(model, trial.train.x[:2], at=at, layer=layer)
    config = ps.FitConfig(
        epochs=trial.epochs,
        batch_size=BATCH,
        folder=RUNS / f"{trial.name}-{seed}" / part,
        seed=seed,
        progress=False,
        optimizer=ps.OptimizerConfig(weight_decay=0.01),
        hardware=ps.Hardware(precision="bfloat16"),
    )
    ps.fit(net, Augmented(*trial.train), objective=ps.Objective(label_smoothing=0.1), config=config, **choices)
    return net


def described(net: ps.GatedNetwork, data: Labelled) -> dict[str, Any]:
    """Return accuracy with open gates, and what the gate stops at 1, 2 and 5 % of the positives lost."""
    outputs = collect_outputs(net, data)
    result: dict[str, Any] = {"accuracy": accuracy(outputs)}
    for layer in net.layers:
        result |= {"values": layer.transmitted_values, "bytes": layer.transmitted_bytes, "stopped": stopped_at(outputs)}
    return result


def of_seed(trial: Trial, seed: int) -> dict[str, Any]:
    """Train the plain network and gated ones, and measure them; what is finished is read from its file."""
    path = RESULTS / f"{trial.name}-seed-{seed}.json"
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in ("plain", *trial.layers) if name not in done]
    if not missing:
        return done
    torch.manual_seed(seed)
    plain_net = fitted(resnet8(3, classes=6, width=WIDTH), trial, seed, "plain", at=0)
    plain = ps.ungate(plain_net)
    assert isinstance(plain, nn.Module)
    plain.eval()
    for name in missing:
        gated = name != "plain"
        net = fitted(plain, trial, seed, name, layer=LAYERS[name], teacher=plain) if gated else plain_net
        done[name] = described(net, trial.judged)
        print(f"  {trial.name}, seed {seed}, {name}: {done[name]}", flush=True)
        write_atomically(path, (json.dumps(done, indent=1) + "\n").encode())
    return done


def measure() -> list[Figure]:
    """Return the accuracy of the chosen layer minus that of the plain network, in points, as a mean over the seeds."""
    runs = [of_seed(Trial.test(), seed) for seed in SEEDS]
    points = [100 * (run[CHOSEN]["accuracy"] - run["plain"]["accuracy"]) for run in runs]
    details = {"runs": runs, "layer": CHOSEN, "epochs": EPOCHS, "batch": BATCH}
    what = f"CIFAR-10, all data, 8-block ResNet, gate at 40 %, {EPOCHS} epochs, at most {BYTES} cross"
    return [Figure(f"{what}: accuracy minus plain's, points", mean(points), ">=", -1.0, details)]


if __name__ == "__main__":
    (wanted,) = sys.argv[1:]
    print(of_seed(Trial.held_out(), 0) if wanted == "held-out" else of_seed(Trial.test(), int(wanted)))
