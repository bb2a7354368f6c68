"""How good: Fashion-MNIST, full data, one gate at 40 %, against the plain network of the same budget.

Nothing here was chosen on the test data; settings were compared on a part of the training data. All seeds count.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import torch

import penstock as ps
from benchmarks.figures import Figure
from penstock.datasets.splits import Splits
from penstock.models.resnet import resnet8
from reproduction.datasets.fashion_mnist import fashion_mnist

EPOCHS = 6
BATCH = 128
WIDTH = 16
AT = 0.4
GATE = 64
TELLS_APART = 0.3
SEEDS = tuple(range(6))


def trained(data: Splits, seed: int, at: float) -> ps.GatedNetwork:
    """Return a trained network, gated at a depth (0: plain); a broken training goes on, a finished one is read."""
    torch.manual_seed(seed)
    layer = ps.LayerConfig(head="linear", gate_width=GATE, class_loss_weight=TELLS_APART)
    net = ps.gate(resnet8(in_channels=1, classes=6, width=WIDTH), data.train.x[:2], at=at, layer=layer)
    ps.fit(
        net,
        data.train,
        objective=ps.Objective(alpha=0.5, beta=0.55),
        config=ps.FitConfig(
            optimizer=ps.OptimizerConfig(schedule="rise-and-fall"),
            epochs=EPOCHS,
            batch_size=BATCH,
            folder=Path("runs") / "bench-fashion-4" / f"{len(net.layers)}-gates-seed-{seed}",
            seed=seed,
            progress=False,
        ),
    )
    return net


def measure() -> list[Figure]:
    """Return early stopping, sparsity, and accuracy against the plain network, as means over the seeds."""
    data = fashion_mnist()
    runs = []
    for seed in SEEDS:
        plain, gated = trained(data, seed, 0), trained(data, seed, AT)
        before, after = ps.evaluate(plain, data.test), ps.evaluate(gated, data.test)
        run = {
            "seed": seed,
            "plain_accuracy": before.accuracy,
            "accuracy": after.accuracy,
            "accuracy_open": after.accuracy_open,
            "early_stopping": after.early_stopping,
            "activation_sparsity": after.activation_sparsity,
            "positive_lost_rate": after.positive_lost_rate,
            "auc": after.gates[0].auc,
        }
        print("  " + ", ".join(f"{key} {value:.4g}" for key, value in run.items()), flush=True)
        runs.append(run)
    gain = [100 * (run["accuracy"] - run["plain_accuracy"]) for run in runs]
    details = {"runs": runs, "epochs": EPOCHS, "batch": BATCH}
    what = "Fashion-MNIST, 8-block ResNet, gate at 40 %, 6 epochs"
    return [
        Figure(f"{what}: early stopping", mean(run["early_stopping"] for run in runs), ">=", 0.95, details),
        Figure(f"{what}: activation sparsity", mean(run["activation_sparsity"] for run in runs), ">=", 0.95),
        Figure(f"{what}: accuracy against the plain network, points", mean(gain), ">=", -0.3),
    ]
