"""Results of several seeds as one row: mean and standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

POINT = "accurate"
"""The operating point of a table (`measure.Choices`)."""


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, and the standard deviation."""

    mean: float
    std: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise one value a seed."""
        return cls(mean(values), stdev(values) if len(values) > 1 else 0.0)


@dataclass(frozen=True)
class Row:
    """One method on one problem, over its seeds; measured on the test part, at `POINT` where there is a gate.

    Attributes:
        settings: α, β and the like.
        early_stopping_at: on the gate's own curve, by the share of positives lost; empty without a single gate.
    """

    problem: str
    method: str
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    accuracy: Spread
    early_stopping: Spread
    positive_lost_rate: Spread
    activation_sparsity: Spread
    auc: Spread | None
    early_stopping_at: dict[str, Spread]


def summarise(results: Sequence[dict[str, Any]]) -> list[Row]:
    """Return a row for each method on each problem, in the order in which they first occur; each run counts once."""
    groups: dict[str, dict[int, dict[str, Any]]] = {}
    for result in results:
        run = result["run"]
        groups.setdefault(f"{run['problem']} {run['method']} {run['settings']}", {})[run["seed"]] = result
    return [_row([group[seed] for seed in sorted(group)]) for group in groups.values()]


def at_point(result: dict[str, Any], part: str = "test", point: str = POINT) -> dict[str, Any]:
    """Return what was measured at an operating point; networks without a gate have one point only."""
    points: dict[str, Any] = result[part]["points"]
    return points[point if point in points else "even"]  # type: ignore[no-any-return]


def _row(group: Sequence[dict[str, Any]]) -> Row:
    run = group[0]["run"]
    points = [at_point(result) for result in group]
    curves = [[gate for gate in result["test"]["gates"] if gate is not None] for result in group]
    single = all(len(gates) == 1 for gates in curves)
    return Row(
        problem=run["problem"],
        method=run["method"],
        settings=run["settings"],
        seeds=tuple(result["run"]["seed"] for result in group),
        accuracy=Spread.of([point["accuracy"] for point in points]),
        early_stopping=Spread.of([point["early_stopping"] for point in points]),
        positive_lost_rate=Spread.of([point["positive_lost_rate"] for point in points]),
        activation_sparsity=Spread.of([result["activation_sparsity"] for result in group]),
        auc=Spread.of([gates[0]["auc"] for gates in curves]) if single else None,
        early_stopping_at={
            lost: Spread.of([gates[0]["early_stopping_at"][lost] for gates in curves])
            for lost in (curves[0][0]["early_stopping_at"] if single else ())
        },
    )
