"""The weights α and β of a problem: what the rows of table 1 are made with, and what a sweep leaves for them.

A sweep writes its choice beside the results, as ``<profile>/<problem>/chosen.json``, with all it was chosen from.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import DataError
from penstock.files import write_atomically


@dataclass(frozen=True)
class Weights:
    """α and β of the rows of table 1.

    Attributes:
        gate: α of the gate alone.
        compression: β of the compression alone.
        trade_off: α and β of the best trade-off.
        accuracy: α and β of the best accuracy.
    """

    gate: float
    compression: float
    trade_off: tuple[float, float]
    accuracy: tuple[float, float]

    @classmethod
    def chosen(cls, results: Path, profile: str, problem: str) -> Weights | None:
        """Return what a sweep chose, or None where there was none."""
        file = _file(results, profile, problem)
        if not file.exists():
            return None
        try:
            plain = json.loads(file.read_text())["weights"]
            pairs = {name: tuple(plain[name]) for name in ("trade_off", "accuracy")}
            return cls(plain["gate"], plain["compression"], **pairs)  # type: ignore[arg-type]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{file} is not the choice of a sweep ({error!r}): delete it, and let penstock sweep choose again."
            ) from error

    def write(self, results: Path, profile: str, problem: str, evidence: dict[str, Any]) -> Path:
        """Write the choice, with what it was chosen from."""
        file = _file(results, profile, problem)
        write_atomically(file, (json.dumps({"weights": asdict(self), **evidence}, indent=1) + "\n").encode())
        return file


def _file(results: Path, profile: str, problem: str) -> Path:
    return results / profile / problem / "chosen.json"
