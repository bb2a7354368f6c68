"""The loss weights α and β of a task for the rows of table 1, as selected by a sweep.

A sweep writes its selection to ``<profile>/<task>/chosen.json`` in the results folder, with all of its trials.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from penstock.errors import DataError
from penstock.runtime.files import write_atomically

T = TypeVar("T")


@dataclass(frozen=True)
class LossWeights:
    """α and β of the rows of table 1.

    Attributes:
        gate: α of the network with a gate only.
        compression: β of the network with a compression only.
        trade_off: α and β of the best trade-off.
        accuracy: α and β of the best accuracy.
    """

    gate: float
    compression: float
    trade_off: tuple[float, float]
    accuracy: tuple[float, float]

    @classmethod
    def load(cls, results: Path, profile: str, task: str) -> LossWeights | None:
        """Return the selection of a sweep, or None if there was none."""
        return _read(_file(results, profile, task), cls._from_json)

    @classmethod
    def _from_json(cls, choice: dict[str, Any]) -> LossWeights:
        plain = choice["weights"]
        pairs = {name: tuple(plain[name]) for name in ("trade_off", "accuracy")}
        return cls(plain["gate"], plain["compression"], **pairs)  # type: ignore[arg-type]

    def write(self, results: Path, profile: str, task: str, evidence: dict[str, Any]) -> Path:
        """Write the selection with the trials it was made from."""
        file = _file(results, profile, task)
        write_atomically(file, (json.dumps({"weights": asdict(self), **evidence}, indent=1) + "\n").encode())
        return file


def read_trials(results: Path, profile: str, task: str) -> list[dict[str, Any]]:
    """Return the trials of a sweep with their values on validation data; empty without a sweep."""
    return _read(_file(results, profile, task), lambda choice: list(choice["trials"])) or []


def _read(file: Path, part: Callable[[dict[str, Any]], T]) -> T | None:
    """Return a part of a selection file, or None if it does not exist."""
    if not file.exists():
        return None
    try:
        return part(json.loads(file.read_text()))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} is not a valid selection of a sweep ({error!r}): delete it and run the sweep again."
        ) from error


def _file(results: Path, profile: str, task: str) -> Path:
    return results / profile / task / "chosen.json"
