"""All of CIFAR-10, an 8-block ResNet, and 5 % of the values, or as many bytes, across a cut at 40 %.

The plain network learns for 14 epochs; gated, it learns on for as many with the plain one as its teacher. As in the
paper, even classes are positives and odd ones the background. Which of the layers below is the figure's was chosen on
a tenth of the training data (`validated`), never on the test data.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import penstock as ps
from benchmarks.doorbell import stopped_at
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
CHOSEN = "8 bits"
RESULTS = Path(__file__).parent / "cifar"


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


def trained(model: nn.Module, seed: int, data: Any, folder: Path, **choices: Any) -> ps.GatedNetwork:
    """Return a trained network, gated unless ``at`` is 0; a broken training goes on, a finished one is read."""
    at, layer = choices.pop("at", AT), choices.pop("layer", ps.LayerConfig())
    torch.manual_seed(seed)
    net = ps.gate(model, data.x[:2], at=at, layer=layer)
    config = ps.FitConfig(
        epochs=EPOCHS,
        batch_size=BATCH,
        folder=folder,
        seed=seed,
        progress=False,
        optimizer=ps.OptimizerConfig(weight_decay=0.01),
        hardware=ps.Hardware(precision="bfloat16"),
    )
    ps.fit(net, Augmented(data.x, data.y), objective=ps.Objective(label_smoothing=0.1), config=config, **choices)
    return net


def described(net: ps.GatedNetwork, data: Any) -> dict[str, Any]:
    """Return accuracy with open gates, and what the gate stops at 1, 2 and 5 % of the positives lost."""
    outputs = collect_outputs(net, (data.x, data.y))
    result: dict[str, Any] = {"accuracy": (outputs.logits.argmax(1) == outputs.labels).double().mean().item()}
    for layer in net.layers:
        result |= {"values": layer.transmitted_values, "bytes": layer.transmitted_bytes, "stopped": stopped_at(outputs)}
    return result


def of_seed(seed: int, train: Any, judged: Any, name: str, layers: tuple[str, ...]) -> dict[str, Any]:
    """Train the plain network and gated ones, and measure them; a finished one is read from the file ``name``."""
    path = RESULTS / f"{name}-seed-{seed}.json"
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    runs = Path("runs") / "bench-cifar" / f"{name}-{seed}"
    missing = [each for each in ("plain", *layers) if each not in done]
    if not missing:
        return done
    torch.manual_seed(seed)
    plain_net = trained(resnet8(3, classes=6, width=WIDTH), seed, train, runs / "plain", at=0)
    plain = ps.ungate(plain_net)
    assert isinstance(plain, nn.Module)
    plain.eval()
    for each in missing:
        net = plain_net
        if each != "plain":
            net = trained(plain, seed, train, runs / each, layer=LAYERS[each], teacher=plain)
        done[each] = described(net, judged)
        print(f"  {name}, seed {seed}, {each}: {done[each]}", flush=True)
        write_atomically(path, (json.dumps(done, indent=1) + "\n").encode())
    return done


def validated() -> None:
    """Compare the layers on a tenth of the training data that is held out, with seed 0."""
    judged, train = (Labelled(*(each[part] for each in cifar10().train)) for part in (slice(5000), slice(5000, None)))
    of_seed(0, train, judged, "held-out", tuple(LAYERS), epochs=5)


def measure() -> list[Figure]:
    """Return the accuracy of the chosen layer minus that of the plain network, in points, as a mean over the seeds."""
    data = cifar10()
    runs = [of_seed(seed, data.train, data.test, "test", (CHOSEN,)) for seed in SEEDS]
    points = [100 * (run[CHOSEN]["accuracy"] - run["plain"]["accuracy"]) for run in runs]
    details = {"runs": runs, "layer": CHOSEN, "epochs": EPOCHS, "batch": BATCH}
    what = f"CIFAR-10, all data, 8-block ResNet, gate at 40 %, {EPOCHS} epochs, at most {BYTES} cross"
    return [Figure(f"{what}: accuracy minus plain's, points", mean(points), ">=", -1.0, details)]


if __name__ == "__main__":
    sys.exit(validated())
