"""Configuration of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import DataError
from penstock.training.config import FitConfig

YOURS, GATED, GATE_ONLY, EARLY_EXIT, TWO_NETWORKS = "yours", "gated", "gate only", "early exit", "two networks"
NAMES = (YOURS, GATED, GATE_ONLY, EARLY_EXIT, TWO_NETWORKS)
"""The contestants, in the order in which they are trained and shown."""


@dataclass(frozen=True)
class CompareConfig:
    """What `compare` trains, and at which operating points it measures.

    Attributes:
        at: where the one gate is placed: a depth, or the name of a module, as `gate` takes them.
        keep: how much the mask of "gated" lets cross, as `LayerConfig` takes it.
        epochs: passes over the training data of each contestant; four times as many of the small network.
        batch_size: samples per step.
        background: the label of negatives.
        seeds: how many times everything is trained: with seeds 0, 1, 2 and so on.
        lost: the shares of positives that may be lost.
        only: the contestants to train; "yours" always is, as all others start from it.
        folder: where what is finished is kept, so that a run that was killed resumes; None keeps nothing.
        progress: show which contestant is trained, and a progress bar.
    """

    at: float | str = 0.4
    keep: int | float | str = 0.3
    epochs: int = 20
    batch_size: int = 256
    background: int = 0
    seeds: int = 3
    lost: tuple[float, ...] = (0.005, 0.01, 0.02, 0.05)
    only: tuple[str, ...] = NAMES
    folder: str | Path | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        FitConfig(epochs=self.epochs, batch_size=self.batch_size)  # refuses what `fit` would refuse later
        if self.seeds < 1:
            raise DataError(f"seeds must be at least 1, got {self.seeds}.")
        unknown = [name for name in self.only if name not in NAMES]
        if unknown:
            raise DataError(f"expected contestants among {', '.join(NAMES)}, got {', '.join(unknown)}.")
        wrong = [share for share in self.lost if not 0 < share < 1]
        if wrong or not self.lost:
            raise DataError(
                f"expected shares of positives lost between 0 and 1, such as 0.02 for 2 %, got {self.lost}."
            )

    @property
    def contestants(self) -> tuple[str, ...]:
        """The contestants that are trained, in order."""
        return tuple(name for name in NAMES if name == YOURS or name in self.only)
