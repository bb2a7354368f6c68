"""One run: a problem, a method and a seed, trained and measured once; its result is one JSON file.

A file that is there is never computed again. A run that was broken goes on from its last epoch. Several processes share
the work: each run is locked while somebody computes it, and the lock dies with its process.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.data.batches import class_counts
from penstock.data.splits import Splits
from penstock.errors import DataError
from penstock.experiments.measure import choose, measure
from penstock.experiments.methods import Method, method_key
from penstock.experiments.problems import PROBLEMS, Problem
from penstock.files import write_atomically
from penstock.network import GatedNetwork
from penstock.training import CollapseWarning

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """What is computed once.

    Attributes:
        problem: the name of a problem.
        method: what is trained.
        seed: of the weights and of the order of the samples.
        profile: "paper" or "lite".
    """

    problem: str
    method: Method
    seed: int
    profile: str = "lite"

    @property
    def key(self) -> str:
        """The path of its result, without the ending."""
        return f"{self.profile}/{self.problem}/{method_key(self.method)}/seed-{self.seed}"

    def result(self, folder: Path) -> dict[str, Any] | None:
        """Return its result, or None if there is none yet."""
        file = folder / f"{self.key}.json"
        if not file.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(file.read_text())
            budget = found["run"]["budget"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is not a result ({error!r}): delete it, and the run is computed again.") from error
        if found["run"] != describe(self):
            raise DataError(
                f"{file} was computed with another budget, {budget}, than the present one, "
                f"{describe(self)['budget']}: move it away, or give another folder for the results."
            )
        return found


@dataclass(frozen=True)
class Laboratory:
    """Where results, data and half-done runs are.

    Attributes:
        results: a folder of result files.
        data: the folder of a problem's data, by its name; where none is given, it is looked for. The wake word's is
            that of the ten words.
        work: a folder for the checkpoints of runs that are under way.
    """

    results: Path
    data: tuple[tuple[str, Path], ...] = ()
    work: Path = Path("runs")

    def __post_init__(self) -> None:
        unknown = sorted(set(dict(self.data)) - set(PROBLEMS))
        if unknown:
            raise DataError(
                f"there is no problem {', '.join(unknown)} to give data for; known are {', '.join(PROBLEMS)}."
            )

    def splits(self, run: Run) -> Splits:
        """Return a run's data; read once."""
        folders = dict(self.data)
        return _read(
            run.problem, folders.get(run.problem, folders.get(PROBLEMS[run.problem].same_data_as)), run.profile
        )

    def perform(self, run: Run) -> dict[str, Any] | None:
        """Return a run's result, computing it if nobody has; None while somebody else computes it."""
        file = self.results / f"{run.key}.json"
        with _lock(self.work / f"{run.key}.lock") as mine:
            known = run.result(self.results)
            if known is not None or not mine:
                return known
            checkpoints = self.work / run.key
            result = compute(run, self.splits(run), checkpoints)
            write_atomically(file, (json.dumps(result, indent=1) + "\n").encode())
            shutil.rmtree(checkpoints, ignore_errors=True)
            return result


def compute(run: Run, data: Splits, checkpoints: Path | None = None) -> dict[str, Any]:
    """Train and measure: on validation data, where choices are made, and on test data, where they are not."""
    problem = PROBLEMS[run.problem]
    budget = problem.budget(run.profile)
    began = time.perf_counter()
    net = build(run, data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)  # they stand in the result
        warned = run.method.train(
            net,
            data.train,
            budget.masks,
            epochs=budget.epochs,
            batch_size=budget.batch_size,
            optimizer=budget.optimizer,
            seed=run.seed,
            folder=checkpoints,
            progress=False,
        )
    seconds = time.perf_counter() - began
    assert data.validation is not None
    choices = choose(net, data.validation, problem.positive_share)
    parts = {"validation": data.validation, "test": data.test}
    return {
        "format": FORMAT,
        "run": describe(run),
        "versions": {name: version(name) for name in ("penstock", "torch")},
        "seconds": round(seconds, 1),
        "trained_on": list(class_counts(data.train, net.plan.classes)),
        "warnings": warned,
        "layers": [_layer(net, i) for i in range(len(net.layers))],
        "activation_sparsity": _sparsity(net),
        **{
            part: measure(net, samples, choices, positive_share=problem.positive_share)
            for part, samples in parts.items()
        },
    }


def build(run: Run, data: Splits) -> GatedNetwork:
    """Return the network of a run, before its training."""
    problem: Problem = PROBLEMS[run.problem]
    torch.manual_seed(run.seed)
    example = _example(data)
    budget = problem.budget(run.profile)
    model = problem.model(example.shape[1], len(data.class_names), budget.width)
    return run.method.build(model, example, budget.masks)


def describe(run: Run) -> dict[str, Any]:
    """Return all that makes a run, as it reads in JSON."""
    values = {
        "problem": run.problem,
        "method": type(run.method).__name__,
        "settings": asdict(run.method),  # type: ignore[call-overload]
        "seed": run.seed,
        "profile": run.profile,
        "budget": asdict(PROBLEMS[run.problem].budget(run.profile)),
    }
    return json.loads(json.dumps(values))  # type: ignore[no-any-return]


def _layer(net: GatedNetwork, i: int) -> dict[str, Any]:
    layer = net.layers[i]
    made: dict[str, Any] = {"at": net.plan.at[i], "feature": list(layer.feature), "density": layer.density}
    if layer.compression is not None:
        phi = layer.compression.phi.detach().clamp(0, 1)
        made["phi_histogram"] = torch.histc(phi, bins=40, min=0, max=1).int().tolist()
    return made


def _sparsity(net: GatedNetwork) -> float:
    """Return the share of the values at the compressed cuts that are not sent; 0 where nothing is compressed."""
    layers = [layer for layer in net.layers if layer.compression is not None]
    values = sum(layer.transmitted_values for layer in layers)
    return 1 - values / sum(prod(layer.feature) for layer in layers) if layers else 0.0


def _example(data: Splits) -> Tensor:
    from penstock.data.batches import batches

    x, _ = next(batches(data.train, batch_size=2))
    return x


@lru_cache(maxsize=1)
def _read(problem: str, folder: Path | None, profile: str) -> Splits:
    return PROBLEMS[problem].data(folder, profile)


@contextmanager
def _lock(file: Path) -> Iterator[bool]:
    """Hold a lock while in the block, if nobody else does; say whether it is held. It ends with the process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
