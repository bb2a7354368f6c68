"""One run: a task, a method and a seed, trained and measured once. Its result is one JSON file.

A result holds measurements on validation data, where choices are made. Measurements on test data are added when a
table or a figure needs them; a sweep never does.
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
"""Keys that every result has."""


@dataclass(frozen=True)
class Run:
    """A training with its measurements, computed once.

    Attributes:
        task: name in `TASKS`.
        method: what is trained.
        seed: seed of the initial weights and the order of the samples.
        profile: "paper" or "lite".
    """

    task: str
    method: Method
    seed: int
    profile: str = "lite"

    @property
    def key(self) -> str:
        """Path of the result file in the results folder, without the suffix."""
        return f"{self.profile}/{self.task}/{method_key(self.method)}/seed-{self.seed}"

    def result(self, folder: Path, *, tested: bool = True) -> dict[str, Any] | None:
        """Return the result, or None if the run is not finished.

        Args:
            folder: the results folder.
            tested: ignore results without measurements on test data.
        """
        file = folder / f"{self.key}.json"
        if not file.exists():
            return None
        found = read_result(file)
        asked = describe(self)
        if differences := list(_differences(found["run"], asked)):
            raise DataError(
                f"{file} was computed with other settings: {', '.join(differences)}. Move it away or use another "
                "results folder."
            )
        return found if "test" in found or not tested else None


def describe(run: Run) -> dict[str, Any]:
    """Return everything that determines a run, as JSON values.

    The keys are those of existing result files: renaming one would invalidate them.
    """
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
    """Read a result file.

    Raises:
        DataError: the file is no valid result, or of a newer format.
    """
    try:
        found: dict[str, Any] = json.loads(file.read_text())
        newer = found["format"] > FORMAT
        missing = [name for name in NEEDED if name not in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is not a valid result ({error!r}): delete it to compute the run again.") from error
    if newer:
        raise DataError(f"{file} has format {found['format']}, expected at most {FORMAT}: update Penstock.")
    if missing:
        raise DataError(
            f"{file} is not a valid result (missing {', '.join(missing)}): delete it to compute the run again."
        )
    return found


def check_same_data(results: Path, profile: str, task: str, labels: Mapping[str, str] | None = None) -> None:
    """Check that all results of a task come from the same data, and from the given data.

    Args:
        labels: checksums of the labels of each split, from `runner.label_checksums`.

    Raises:
        DataError: they come from different data, so that they cannot be averaged.
    """
    known, whose = labels, "the given data"
    for file in sorted((results / profile / task).glob("*/seed-*.json")):
        made_from = read_result(file).get("labels")  # early results have no checksums
        if made_from is None:
            continue
        if known is None:
            known, whose = made_from, f"the data of {file}"
        if made_from != known:
            raise DataError(
                f"{file} was computed from other data than {whose}: the labels differ in "
                f"{', '.join(part for part in known if known[part] != made_from.get(part))}. Use the original "
                "data, or another results folder."
            )


def _differences(found: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings in which a result differs from the expected ones."""
    for name, value in asked.items():
        if name == "budget":
            yield from _differences(found[name], value)
        elif found.get(name) != value:
            yield f"{name} = {found.get(name)}, expected {value}"
