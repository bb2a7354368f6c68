"""Compute runs: train, measure, and write the result.

A finished run is never computed again, and an interrupted one resumes from its last epoch. Several processes can share
the work: each run is locked while it is computed, by a file in the results folder that is released when its process
ends.

A sweep measures on validation data only. The weights then stay in the work folder, so that the run can be tested later
without training it again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.datasets.loading import batches, class_counts, labels
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from penstock.gating.network import GatedNetwork
from penstock.runtime.files import write_atomically
from penstock.runtime.locks import try_lock
from penstock.training.config import FitConfig, Hardware
from penstock.training.module import CollapseWarning
from reproduction.experiments.measure import choose_operating_points, measure
from reproduction.experiments.runs import FORMAT, Run, check_same_data, describe
from reproduction.experiments.tasks import TASKS, Task

LOCKS = ".locks"
"""Folder of lock files in the results folder."""


@dataclass(frozen=True)
class Runner:
    """Computes runs, given the folders of results, data and checkpoints.

    Attributes:
        results: folder of result files; processes and machines that share the work share it.
        data: the folder of a problem's data, by its name; where none is given, it is looked for. The wake word's is
            that of the ten words.
        work: folder for checkpoints of runs that are not finished.
        hardware: what to train on.
    """

    results: Path
    data: tuple[tuple[str, Path], ...] = ()
    work: Path = Path("runs")
    hardware: Hardware = Hardware()

    def __post_init__(self) -> None:
        unknown = sorted(set(dict(self.data)) - set(TASKS))
        if unknown:
            raise DataError(f"unknown task in data: {', '.join(unknown)}. Choose from {', '.join(TASKS)}.")

    def data_folder(self, run: Run) -> Path | None:
        """Return the data folder passed for a run's task, if any."""
        folders = dict(self.data)
        return folders.get(run.task, folders.get(TASKS[run.task].same_data_as))

    def splits(self, run: Run) -> Splits:
        """Return a run's data, read once, after checking that existing results come from the same data."""
        data = _read(run.task, self.data_folder(run), run.profile)
        check_same_data(self.results, run.profile, run.task, label_checksums(data))
        return data

    def execute(self, run: Run, *, test: bool = True) -> dict[str, Any] | None:
        """Return a run's result, computing it if necessary; None while another process computes it.

        Args:
            test: measure on test data too.
        """
        known = run.result(self.results, tested=test)
        if known is not None:
            return known
        with try_lock(self.results / LOCKS / f"{run.key}.lock") as mine:
            known = run.result(self.results, tested=test)  # another process may just have finished it
            if known is not None or not mine:
                return known
            weights = self.work / run.key
            result = compute(run, self.splits(run), weights, hardware=self.hardware, test=test)
            before = run.result(self.results, tested=False)
            if before is not None:  # trained earlier, only tested now
                result["seconds"] = before["seconds"]
            write_atomically(self.results / f"{run.key}.json", (json.dumps(result, indent=1) + "\n").encode())
            if test:
                shutil.rmtree(weights, ignore_errors=True)
            return result


def compute(
    run: Run, data: Splits, weights: Path | None = None, *, hardware: Hardware = Hardware(), test: bool = True
) -> dict[str, Any]:
    """Train and measure. All choices are made on validation data.

    Args:
        weights: folder for checkpoints. An interrupted training resumes from it, a finished one is loaded.
        hardware: what to train on.
        test: measure on test data too.
    """
    task = TASKS[run.task]
    budget = task.budget(run.profile)
    began = time.perf_counter()
    net = build(run, data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)  # recorded in the result
        warned = run.method.train(
            net,
            data.train,
            budget.masks,
            FitConfig(
                optimizer=budget.optimizer.optimizer(),
                epochs=budget.epochs,
                batch_size=budget.batch_size,
                folder=weights,
                seed=run.seed,
                progress=False,
                hardware=hardware,
            ),
        )
    seconds = time.perf_counter() - began
    net.to(hardware.device)
    assert data.validation is not None
    choices = choose_operating_points(net, data.validation, task.positive_share)
    parts = {"validation": data.validation} | ({"test": data.test} if test and data.test else {})
    return {
        "format": FORMAT,
        "run": describe(run),
        "versions": {name: version(name) for name in ("penstock", "torch")},
        "labels": label_checksums(data),
        "seconds": round(seconds, 1),
        "trained_on": list(class_counts(data.train, net.spec.classes)),
        "warnings": warned,
        "layers": [_layer(net, i) for i in range(len(net.layers))],
        "activation_sparsity": _sparsity(net),
        **{part: measure(net, samples, choices, positive_share=task.positive_share) for part, samples in parts.items()},
    }


def build(run: Run, data: Splits) -> GatedNetwork:
    """Return the untrained network of a run."""
    task: Task = TASKS[run.task]
    torch.manual_seed(run.seed)
    example = _example(data)
    budget = task.budget(run.profile)
    model = task.model(example.shape[1], len(data.class_names), budget.width)
    return run.method.build(model, example, budget.masks)


def label_checksums(data: Splits) -> dict[str, str]:
    """Return a checksum of the labels of each split, the same on every machine."""
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    return {
        name: hashlib.sha256(labels(part).to(torch.int64).numpy().tobytes()).hexdigest()[:16]
        for name, part in parts.items()
        if part is not None
    }


def _layer(net: GatedNetwork, i: int) -> dict[str, Any]:
    layer = net.layers[i]
    description: dict[str, Any] = {"at": net.spec.at[i], "feature": list(layer.feature), "density": layer.density}
    if layer.compression is not None:
        phi = layer.compression.phi.detach().clamp(0, 1)
        description["phi_histogram"] = torch.histc(phi, bins=40, min=0, max=1).int().tolist()
    return description


def _sparsity(net: GatedNetwork) -> float:
    """Return the share of values dropped at the compressed cuts; 0 without compression."""
    layers = [layer for layer in net.layers if layer.compression is not None]
    values = sum(layer.transmitted_values for layer in layers)
    return 1 - values / sum(prod(layer.feature) for layer in layers) if layers else 0.0


def _example(data: Splits) -> Tensor:
    x, _ = next(batches(data.train, batch_size=2))
    return x


@lru_cache(maxsize=1)
def _read(task: str, folder: Path | None, profile: str) -> Splits:
    return TASKS[task].data(folder, profile)
