"""Made-up results in the very format of real ones: each is a real result of a tiny run, with other numbers in it."""

import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import NormalDist
from unittest.mock import patch

import numpy as np

from helpers.tones import CLASSES, tones
from penstock.datasets.splits import Splits
from penstock.models import resnet8_1d
from reproduction.experiments import tasks
from reproduction.experiments.measure import LOSS_LEVELS
from reproduction.experiments.methods import GC, C, G, GateInput, Method, TwoStage
from reproduction.experiments.paper_experiments import EXPERIMENTS
from reproduction.experiments.runner import compute
from reproduction.experiments.runs import Run, describe

LEVEL = {"fashion-mnist": 0.93, "cifar10": 0.80, "speech-commands": 0.88, "wake-word": 0.984, "hey-snips": 0.98}
"""Accuracies that are plausible."""

SHARPNESS = {"fashion-mnist": 4.3, "cifar10": 2.2, "speech-commands": 3.0, "wake-word": 3.9, "hey-snips": 3.5}
"""How far the scores of positives lie from those of negatives, in standard deviations."""

NORMAL = NormalDist()


def every_run(folder: Path) -> list[Run]:
    """All runs of all experiments, each once."""
    runs = [run for experiment in EXPERIMENTS.values() for run in experiment.runs("lite", results=folder)]
    return list(dict.fromkeys(runs))


def write(folder: Path, runs: Iterable[Run], change: Callable[[Run, dict], None] = lambda run, result: None) -> None:
    """Write a made-up result for each run; ``change`` may edit it before."""
    for run in runs:
        result = plausible(run)
        change(run, result)
        file = folder / f"{run.key}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result))


def plausible(run: Run) -> dict:
    """Return the result of a tiny real run, with numbers that could be this run's."""
    result = deepcopy(_template(run.method))
    draw = np.random.default_rng(_seed(run.key))
    result["run"] = describe(run)
    result["seconds"] = round(60 + 30 * draw.random(), 1)
    blocks = getattr(run.method, "blocks", (4,))
    beta = getattr(run.method, "beta", None) or 0.0
    accuracy = LEVEL[run.task]
    accuracy += 0.008 * bool(result["layers"]) - 0.002 * len(blocks) - 0.006 * beta + 0.003 * draw.standard_normal()
    for i, layer in enumerate(result["layers"]):
        if "phi_histogram" in layer:
            _mask(layer, 0.6 * 0.01 ** min(beta, 0.9) + 0.01 * blocks[min(i, len(blocks) - 1)], draw)
    densities = [layer["density"] for layer in result["layers"]]
    result["activation_sparsity"] = 1 - float(np.mean(densities)) if densities else 0.0
    for part in ("validation", "test"):
        _measured(result[part], run, blocks, accuracy, draw)
    return result


def _mask(layer: dict, density: float, draw: np.random.Generator) -> None:
    layer["feature"], values = [32, 14, 14], 32 * 14 * 14
    kept = round(density * values)
    near_zero, near_one = np.exp(-np.arange(20.0)), np.exp(np.arange(20.0) / 4)
    counts = [draw.multinomial(n, w / w.sum()) for n, w in ((values - kept, near_zero), (kept, near_one))]
    layer["phi_histogram"] = np.concatenate(counts).tolist()
    layer["density"] = kept / values


def _measured(part: dict, run: Run, blocks: tuple[int, ...], accuracy: float, draw: np.random.Generator) -> None:
    part["accuracy_open"] = accuracy
    for name, point in part["points"].items():
        point["accuracy"] = accuracy
        if name != "even":
            lost = float(name.removeprefix("lost ")) if name.startswith("lost") else 0.03
            stopped = _stopped(_sharpness(run, max(blocks)), lost)
            point.update(early_stopping=stopped, positive_lost_rate=lost)
    for i, gate in enumerate(part["gates"]):
        if gate is None:
            continue
        block = blocks[min(i, len(blocks) - 1)]
        sharp = _sharpness(run, block) - 0.3 * (len(blocks) > 1) + 0.08 * draw.standard_normal()
        _bend(gate, sharp)
        if "modes" in part:
            together = _sharpness(run, block) + 0.25 * (i > 0) + 0.05 * i
            stops = {f"{lost:g}": _stopped(together, lost) for lost in LOSS_LEVELS}
            part["modes"]["incremental"][i]["early_stopping_at"] = stops if i else dict(gate["early_stopping_at"])


def _sharpness(run: Run, block: int) -> float:
    better = {"BranchyNet": -0.25, "TwoStage": -0.5}.get(type(run.method).__name__, 0.0)
    if isinstance(run.method, GateInput):
        block = run.method.block
    return SHARPNESS[run.task] + better + 0.15 * (block - 4) + 0.3 * getattr(run.method, "alpha", 0.5)


def _bend(gate: dict, sharp: float) -> None:
    gate["auc"] = NORMAL.cdf(sharp / 2**0.5)
    gate["early_stopping_at"] = {f"{lost:g}": _stopped(sharp, lost) for lost in LOSS_LEVELS}
    gate["roc"]["positives_passed"] = [
        NORMAL.cdf(NORMAL.inv_cdf(min(max(x, 1e-9), 1 - 1e-9)) + sharp) for x in gate["roc"]["negatives_passed"]
    ]


def _stopped(sharp: float, lost: float) -> float:
    return NORMAL.cdf(NORMAL.inv_cdf(lost) + sharp)


def _seed(text: str) -> int:
    return int.from_bytes(text.encode(), "big") % (2**61 - 1)


def _template(method: Method) -> dict:
    """Return a real result of the same kind of method."""
    if isinstance(method, GC):
        count = len(method.blocks)
        if count == 1:
            return tiny(GC(0.5, 0.3))
        result = deepcopy(tiny(GC(0.5, 0.3, tuple(range(1, 9)))))
        result["layers"] = result["layers"][:count]
        for part in (result["validation"], result["test"]):
            part["gates"] = part["gates"][:count]
            part["modes"] = {name: rows[:count] for name, rows in part["modes"].items()}
        return result
    if isinstance(method, GateInput):
        return tiny(GC(0.5, 0.3)) if method.block == 4 else tiny(replace(method, block=2 if method.block < 4 else 6))
    if isinstance(method, TwoStage):  # the same networks, trained in another order
        return tiny(G(0.5) if method.beta is None else GC(0.5, 0.3))
    if isinstance(method, C):
        return tiny(C(0.3))
    return tiny(replace(method, alpha=0.5) if hasattr(method, "alpha") else method)


@cache
def tiny(method: Method) -> dict:
    """Return the result of a run that takes no time: noise, or one of two tones in it."""
    budget = replace(tasks.TASKS["wake-word"].lite, width=2, epochs=1, batch_size=64)
    data = Splits(tones(128, 0), tones(120, 1), CLASSES, tones(120, 2))
    task = tasks.Task("tones", "tones", "ResNet", lambda *_: data, resnet8_1d, budget, budget)
    with patch.dict(tasks.TASKS, tones=task):
        return compute(Run("tones", method, 0), data)
