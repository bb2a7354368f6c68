"""Summarise the results of several seeds: mean and standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

OPERATING_POINT = "accurate"
"""Operating point that tables show (`measure.OperatingPoints`)."""


@dataclass(frozen=True)
class MeanStd:
    """Mean and standard deviation over seeds."""

    mean: float
    std: float

    @classmethod
    def of(cls, values: Sequence[float]) -> MeanStd:
        """Summarise one value per seed."""
        return cls(mean(values), stdev(values) if len(values) > 1 else 0.0)


@dataclass(frozen=True)
class SummaryRow:
    """One method on one task, over all seeds: measured on test data, at `OPERATING_POINT` if there is a gate.

    Attributes:
        settings: the method's fields, such as α and β.
        auc: of the gate; None unless there is exactly one.
        early_stopping_at: early stopping by share of positives lost; empty unless there is exactly one gate.
    """

    task: str
    method: str
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    accuracy: MeanStd
    early_stopping: MeanStd
    positive_lost_rate: MeanStd
    activation_sparsity: MeanStd
    auc: MeanStd | None
    early_stopping_at: dict[str, MeanStd]


def summarise(results: Sequence[dict[str, Any]]) -> list[SummaryRow]:
    """Return one row per method and task, in order of first occurrence; duplicate runs count once."""
    groups: dict[str, dict[int, dict[str, Any]]] = {}
    for result in results:
        run = result["run"]
        groups.setdefault(f"{run['problem']} {run['method']} {run['settings']}", {})[run["seed"]] = result
    return [_row([group[seed] for seed in sorted(group)]) for group in groups.values()]


def at_operating_point(result: dict[str, Any], part: str = "test", point: str = OPERATING_POINT) -> dict[str, Any]:
    """Return the measurements at an operating point; networks without a gate have only the point "even"."""
    points: dict[str, Any] = result[part]["points"]
    return points[point if point in points else "even"]  # type: ignore[no-any-return]


def _row(group: Sequence[dict[str, Any]]) -> SummaryRow:
    run = group[0]["run"]
    points = [at_operating_point(result) for result in group]
    curves = [[gate for gate in result["test"]["gates"] if gate is not None] for result in group]
    single = all(len(gates) == 1 for gates in curves)
    return SummaryRow(
        task=run["problem"],
        method=run["method"],
        settings=run["settings"],
        seeds=tuple(result["run"]["seed"] for result in group),
        accuracy=MeanStd.of([point["accuracy"] for point in points]),
        early_stopping=MeanStd.of([point["early_stopping"] for point in points]),
        positive_lost_rate=MeanStd.of([point["positive_lost_rate"] for point in points]),
        activation_sparsity=MeanStd.of([result["activation_sparsity"] for result in group]),
        auc=MeanStd.of([gates[0]["auc"] for gates in curves]) if single else None,
        early_stopping_at={
            lost: MeanStd.of([gates[0]["early_stopping_at"][lost] for gates in curves])
            for lost in (curves[0][0]["early_stopping_at"] if single else ())
        },
    )
