"""All of CIFAR-10, an 8-block ResNet, and as many bytes across a cut at 40 % as 5 % of its values take in float32.

The plain network learns for 14 epochs; gated, it learns on for as many with the plain one as its teacher. As in the
paper, even classes are positives and odd ones the background.

`python -m benchmarks.cifar SEED` trains for one seed.
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
from benchmarks.doorbell import accuracy, stopped_at
from benchmarks.figures import Figure
from penstock.evaluation.outputs import collect_outputs
from penstock.models.resnet import resnet8
from penstock.runtime.files import write_atomically
from reproduction.datasets.cifar10 import cifar10

SEEDS = (0,)
EPOCHS, BATCH = 14, 256
WIDTH, AT, SHIFT = 16, 0.4, 4
BYTES = "1640 bytes"
"""410 of 8,192 values as float32."""
RESULTS, RUNS = Path(__file__).parent / "cifar", Path("runs/bench-cifar")


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


def fitted(model: nn.Module, seed: int, part: str, **choices: Any) -> ps.GatedNetwork:
    """Return a trained network; a broken training goes on, a finished one is read.

    Args:
        choices: ``at``, and the ``teacher`` of `fit`.
    """
    train = cifar10().train
    torch.manual_seed(seed)
    net = ps.gate(model, train.x[:2], at=choices.pop("at", AT), layer=ps.LayerConfig(keep=BYTES))
    config = ps.FitConfig(
        epochs=EPOCHS,
        batch_size=BATCH,
        folder=RUNS / f"{part}-{seed}",
        seed=seed,
        progress=False,
        optimizer=ps.OptimizerConfig(weight_decay=0.01),
        hardware=ps.Hardware(precision="float32"),
    )
    ps.fit(net, Augmented(*train), objective=ps.Objective(label_smoothing=0.1), config=config, **choices)
    return net


def described(net: ps.GatedNetwork) -> dict[str, Any]:
    """Return accuracy with open gates, and what the gate stops at 1, 2 and 5 % of the positives lost, on test data."""
    outputs = collect_outputs(net, cifar10().test)
    result: dict[str, Any] = {"accuracy": accuracy(outputs)}
    for layer in net.layers:
        result |= {"values": layer.transmitted_values, "bytes": layer.transmitted_bytes, "stopped": stopped_at(outputs)}
    return result


def of_seed(seed: int) -> dict[str, Any]:
    """Train the plain network and the gated one, and measure them; what is finished is read from its file."""
    path = RESULTS / f"seed-{seed}.json"
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if done.keys() >= {"plain", "gated"}:
        return done
    torch.manual_seed(seed)
    plain_net = fitted(resnet8(3, classes=6, width=WIDTH), seed, "plain", at=0)
    plain = ps.ungate(plain_net)
    assert isinstance(plain, nn.Module)
    done["plain"] = described(plain_net)
    done["gated"] = described(fitted(plain.eval(), seed, "gated", teacher=plain))
    print(f"  seed {seed}: {done}", flush=True)
    write_atomically(path, (json.dumps(done, indent=1) + "\n").encode())
    return done


def measure() -> list[Figure]:
    """Return the accuracy of the gated network minus that of the plain one, in points, as a mean over the seeds."""
    runs = [of_seed(seed) for seed in SEEDS]
    points = [100 * (run["gated"]["accuracy"] - run["plain"]["accuracy"]) for run in runs]
    details = {"runs": runs, "epochs": EPOCHS, "batch": BATCH}
    what = f"CIFAR-10, all data, 8-block ResNet, gate at 40 %, {EPOCHS} epochs, at most {BYTES} cross"
    return [Figure(f"{what}: accuracy minus plain's, points", mean(points), ">=", -1.0, details)]


if __name__ == "__main__":
    of_seed(int(sys.argv[1]))
