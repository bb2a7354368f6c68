"""One run: a task, a method and a seed, trained and measured once; its result is one JSON file.

A result has what was measured on validation data, where choices are made. What was measured on test data joins it when
a table or a figure asks for it; a sweep never does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import DataError
from reproduction.experiments.methods import Method, method_key
from reproduction.experiments.tasks import TASKS

FORMAT = 1
NEEDED = ("run", "seconds", "trained_on", "layers", "activation_sparsity", "validation")
"""What every result has."""


@dataclass(frozen=True)
class Run:
    """What is computed once.

    Attributes:
        task: the name of a task.
        method: what is trained.
        seed: of the weights and of the order of the samples.
        profile: "paper" or "lite".
    """

    task: str
    method: Method
    seed: int
    profile: str = "lite"

    @property
    def key(self) -> str:
        """The path of its result, without the ending."""
        return f"{self.profile}/{self.task}/{method_key(self.method)}/seed-{self.seed}"

    def result(self, folder: Path, *, tested: bool = True) -> dict[str, Any] | None:
        """Return its result, or None if there is none yet.

        Args:
            folder: of the results.
            tested: a result that was not measured on test data yet is none.
        """
        file = folder / f"{self.key}.json"
        if not file.exists():
            return None
        found = read_result(file)
        asked = describe(self)
        if differences := list(_differences(found["run"], asked)):
            raise DataError(
                f"{file} was computed with {', '.join(differences)}: move it away, or give another folder for the "
                "results."
            )
        return found if "test" in found or not tested else None


def describe(run: Run) -> dict[str, Any]:
    """Return all that makes a run, as it reads in JSON; how many seeds others have does not."""
    budget = asdict(TASKS[run.task].budget(run.profile))
    values = {
        "problem": run.task,
        "method": type(run.method).__name__,
        "settings": asdict(run.method),  # type: ignore[call-overload]
        "seed": run.seed,
        "profile": run.profile,
        "budget": {name: value for name, value in budget.items() if name != "seeds"},
    }
    return json.loads(json.dumps(values))  # type: ignore[no-any-return]


def read_result(file: Path) -> dict[str, Any]:
    """Read a result.

    Raises:
        DataError: when it is none, or of a newer format.
    """
    try:
        found: dict[str, Any] = json.loads(file.read_text())
        newer = found["format"] > FORMAT
        missing = [name for name in NEEDED if name not in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is not a result ({error!r}): delete it, and the run is computed again.") from error
    if newer:
        raise DataError(
            f"{file} is a result in format {found['format']}, and this Penstock reads up to {FORMAT}: update it."
        )
    if missing:
        raise DataError(
            f"{file} is not a result (it lacks {', '.join(missing)}): delete it, and the run is computed again."
        )
    return found


def check_same_data(results: Path, profile: str, task: str, labels: Mapping[str, str] | None = None) -> None:
    """See that all results of a task were made from the same data, and from this one if it is given.

    Args:
        labels: a checksum of the labels of each part, as `runner.label_checksums` makes them.

    Raises:
        DataError: when they were not; means over them would mean nothing.
    """
    known, whose = labels, "the data at hand"
    for file in sorted((results / profile / task).glob("*/seed-*.json")):
        made_from = read_result(file).get("labels")  # results of the first days do not say
        if made_from is None:
            continue
        if known is None:
            known, whose = made_from, f"that of {file}"
        if made_from != known:
            raise DataError(
                f"{file} was computed from other data than {whose}: its labels differ in "
                f"{', '.join(part for part in known if known[part] != made_from.get(part))}. Give the data that it was "
                "computed from, or another folder for the results."
            )


def _differences(found: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """Say what a result was computed with that is now another."""
    for name, value in asked.items():
        if name == "budget":
            yield from _differences(found[name], value)
        elif found.get(name) != value:
            yield f"{name} = {found.get(name)} and not {value}"
