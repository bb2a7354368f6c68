"""Measure how long the stages of exported networks take: one sample, one thread, onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from penstock.errors import PenstockError
from penstock.evaluation.timing import best_seconds
from penstock.export.bundling import export_bundle
from penstock.gating.network import GatedNetwork
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.engines import load_engines

BUDGET, FEWEST, MOST = 5.0, 5, 300
"""Seconds to measure for, and the rounds at least and at most."""


def export_or_reason(net: GatedNetwork, example: Tensor, folder: Path) -> str | None:
    """Write a bundle to measure; return the reason if the network cannot be exported."""
    try:
        export_bundle(net, example, folder)
    except PenstockError as error:
        return str(error)
    return None


def stage_seconds(bundles: Mapping[str, Path], sample: np.ndarray) -> dict[str, list[float]]:
    """Return the seconds that each stage of each bundle takes, measured in turns.

    Args:
        bundles: the folder of each.
        sample: (1, ...), an input.
    """
    stages = {name: _stages(folder, sample) for name, folder in bundles.items()}
    runs = {f"{name}/{number}": run for name, of_one in stages.items() for number, run in enumerate(of_one)}
    once = sum(best_seconds(runs, rounds=1).values())
    best = best_seconds(runs, rounds=min(max(round(BUDGET / max(once, 1e-6)), FEWEST), MOST))
    return {name: [best[f"{name}/{number}"] for number in range(len(of_one))] for name, of_one in stages.items()}


def _stages(folder: Path, values: np.ndarray) -> list[Callable[[], object]]:
    """Return a function for each stage that runs it on what the stages before it make of the input."""
    runs: list[Callable[[], object]] = []
    for engine in load_engines(Bundle.read(folder), threads=1):
        runs.append(partial(engine.run, values))
        values = engine.run(values).values
    return runs
