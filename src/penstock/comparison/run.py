"""One seed of a comparison: what is finished is a file in its folder, what is not is trained.

A file holds a contestant's answers to every sample of the validation and the test data. Points are computed from those,
so other losses need no training.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import torch
from rich.console import Console
from torch import Tensor, nn

from penstock.comparison.config import TWO_NETWORKS, YOURS, CompareConfig
from penstock.comparison.contestants import TRAINED, Task, train_yours
from penstock.comparison.points import Answers, Costs, Point, choose_threshold, measured
from penstock.comparison.stage_times import export_or_reason, stage_seconds
from penstock.datasets.loading import Data, batches, fingerprint
from penstock.errors import LayerError, StorageError
from penstock.gating import checkpoint
from penstock.gating.network import GatedNetwork
from penstock.runtime.files import write_atomically
from penstock.training.fit import digest_of
from penstock.training.run_directory import claim_settings

Model: TypeAlias = nn.Module | Callable[[], nn.Module]
"""A function that returns a network, or a network, which is copied."""


def claim(folder: Path, model: Model, parts: dict[str, Data], config: CompareConfig) -> None:
    """Refuse a folder of a comparison whose trainings were others; seeds, losses and contestants may be added."""
    path = folder / "comparison.json"
    trained = ("at", "keep", "epochs", "batch_size", "background")
    settings = {
        "network": digest_of(built(model, 0)),
        "data": {part: fingerprint(data) for part, data in parts.items()},
        **{name: getattr(config, name) for name in trained},
    }
    claim_settings(path, settings, resumed=path.exists())


@dataclass(frozen=True)
class LeftOut:
    """A contestant that cannot be built for this network, and why."""

    reason: str


@dataclass(frozen=True)
class Finished:
    """What is kept of a finished contestant.

    Attributes:
        not_exported: why there is no bundle to measure the time of.
    """

    validation: Answers
    test: Answers
    costs: Costs
    not_exported: str | None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        answers = {part: getattr(self, part).to_json() for part in ("validation", "test")}
        return answers | {"costs": asdict(self.costs), "not_exported": self.not_exported}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Finished:
        """Return what `to_json` described."""
        validation, test = Answers.from_json(raw["validation"]), Answers.from_json(raw["test"])
        return cls(validation, test, Costs(**raw["costs"]), raw["not_exported"])

    def points(self, name: str, seed: int, lost: tuple[float, ...], seconds: list[float] | None) -> Iterator[Point]:
        """Yield the point at each permitted loss: thresholds from validation data, all else from test data."""
        for allowed in lost:
            threshold = choose_threshold(self.validation, allowed)
            yield Point(name, seed, allowed, threshold, **measured(self.test, self.costs, threshold, seconds))


@dataclass(frozen=True)
class Run:
    """The contestants of one seed, in a folder."""

    folder: Path
    model: Model
    parts: dict[str, Data]
    config: CompareConfig
    seed: int

    def record(self, name: str) -> Finished | LeftOut:
        """Return what is known of a contestant, training it if it is not finished."""
        path = self.folder / f"{name}.json"
        raw = read_json(path) if path.exists() else self._made(name)
        return LeftOut(raw["left_out"]) if "left_out" in raw else Finished.from_json(raw)

    def _made(self, name: str) -> dict[str, Any]:
        self._say(name)
        try:
            raw = self._trained(name).to_json()
        except LayerError as error:
            raw = {"left_out": str(error)}
        write_atomically(self.folder / f"{name}.json", json.dumps(raw).encode())
        return raw

    def _trained(self, name: str) -> Finished:
        contestant = TRAINED[name](self.yours, self._task)
        validation, test = (contestant.answers(self.parts[part]) for part in ("validation", "test"))
        reason = None
        if self.seed == 0:  # whose networks are timed
            reason = export_or_reason(contestant.networks[0], self._example, self.folder / name)
        return Finished(validation, test, contestant.costs, reason)

    @cached_property
    def yours(self) -> GatedNetwork:
        """The user's network, trained: always as read from its file, so that a resumed run goes on with the same."""
        path = self.folder / "yours.safetensors"
        model = built(self.model, self.seed)
        if not path.exists():
            checkpoint.save(train_yours(model, self._task), path)
        return checkpoint.load(path, model).eval()

    def seconds(self, records: dict[str, Finished | LeftOut]) -> tuple[dict[str, list[float]], dict[str, str]]:
        """Return the seconds of each contestant's stages, and why there are none."""
        finished = {name: record for name, record in records.items() if isinstance(record, Finished)}
        untimed = {name: record.not_exported for name, record in finished.items() if record.not_exported is not None}
        if YOURS in untimed and TWO_NETWORKS in finished:
            untimed.setdefault(TWO_NETWORKS, untimed[YOURS])
        found = self._measured([name for name in finished if name not in untimed])
        if TWO_NETWORKS in found:
            found[TWO_NETWORKS] = found[TWO_NETWORKS] + found[YOURS]
        return found, untimed

    def _measured(self, names: list[str]) -> dict[str, list[float]]:
        path = self.folder / "seconds.json"
        found = read_json(path) if path.exists() else {}
        if not set(names) <= found.keys():
            self._say("time of the stages")
            found = stage_seconds({name: self.folder / name for name in names}, self._example[:1].numpy())
            write_atomically(path, json.dumps(found).encode())
        return {name: found[name] for name in names}

    @property
    def _task(self) -> Task:
        return Task(self.parts["train"], self.parts["validation"], self.config, self.seed)

    @property
    def _example(self) -> Tensor:
        return next(batches(self.parts["validation"], batch_size=16))[0]

    def _say(self, what: str) -> None:
        console = Console(stderr=True, quiet=not self.config.progress)
        console.print(f"[bold]seed {self.seed + 1} of {self.config.seeds}[/]: {what}")


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of an earlier run."""
    try:
        return json.loads(path.read_text())  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot resume: {path} cannot be read ({error}). Delete it to train it again.") from error


def built(model: Model, seed: int) -> nn.Module:
    """Return the network before its training with this seed."""
    torch.manual_seed(seed)
    return copy.deepcopy(model) if isinstance(model, nn.Module) else model()
