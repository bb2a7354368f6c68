"""Trials of a sweep, their Pareto front, and the rules that select the rows of table 1 from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.errors import DataError
from reproduction.experiments.methods import GC

MIN_EARLY_STOPPING, MIN_SPARSITY, MIN_TRADE_OFF_SPARSITY = 0.82, 0.4, 0.93
"""Requirements on the best accuracy (early stopping, sparsity) and on the best trade-off (sparsity)."""


@dataclass(frozen=True)
class Trial:
    """One setting and its values on validation data, means over seeds.

    Attributes:
        accuracy, early_stopping: at the operating point "accurate" (`measure.OperatingPoints`).
        stopping_at_loss: early stopping at equal positive loss, the mean over `measure.LOSS_LEVELS`.
        activation_sparsity: share of values dropped, over all layers.
    """

    method: GC
    accuracy: float
    early_stopping: float
    stopping_at_loss: float
    activation_sparsity: float

    def __str__(self) -> str:
        method, blocks = self.method, ", ".join(map(str, self.method.blocks))
        return (
            f"α {method.alpha:g}, β {method.beta:g}, after {blocks}: accuracy {self.accuracy:.2%}, early stopping "
            f"{self.early_stopping:.1%} ({self.stopping_at_loss:.1%} at equal loss), "
            f"sparsity {self.activation_sparsity:.1%}"
        )

    @property
    def objectives(self) -> tuple[float, float, float]:
        """The objectives, all maximised."""
        return self.accuracy, self.stopping_at_loss, self.activation_sparsity


def pareto_front(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that no other trial dominates."""
    return [
        one
        for one in trials
        if not any(
            other.objectives != one.objectives
            and all(a >= b for a, b in zip(other.objectives, one.objectives, strict=True))
            for other in trials
        )
    ]


def best_accuracy(
    trials: Sequence[Trial], *, early_stopping: float = MIN_EARLY_STOPPING, sparsity: float = MIN_SPARSITY
) -> Trial:
    """Return the most accurate point of the Pareto front with enough early stopping and sparsity; ties: the first."""
    return _best(
        trials,
        aim=lambda trial: trial.accuracy,
        short=lambda trial: (early_stopping - trial.early_stopping, sparsity - trial.activation_sparsity),
    )


def best_trade_off(trials: Sequence[Trial], *, accuracy: float, sparsity: float = MIN_TRADE_OFF_SPARSITY) -> Trial:
    """Return the point of the Pareto front that stops most at equal loss, given enough accuracy and sparsity."""
    return _best(
        trials,
        aim=lambda trial: trial.stopping_at_loss,
        short=lambda trial: (accuracy - trial.accuracy, sparsity - trial.activation_sparsity),
    )


def _best(trials: Sequence[Trial], aim: Callable[[Trial], float], short: Callable[[Trial], tuple[float, ...]]) -> Trial:
    """Return the best point that meets all requirements, or else the one that misses them by the least."""
    front = pareto_front(trials)
    if not front:
        raise DataError("the study has no finished trial: run more trials before selecting.")
    return min(front, key=lambda trial: (sum(max(0.0, missing) for missing in short(trial)), -aim(trial)))
