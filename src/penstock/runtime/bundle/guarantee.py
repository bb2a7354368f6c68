"""What calibrated thresholds guarantee: an upper bound on the positives they lose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """With this confidence, the gates lose at most this share of the positives.

    Attributes:
        positives: the number of positives (or events) that the thresholds were tested on.
        lost: the number of them that the gates stopped.
        bound: the upper confidence bound of the share that is lost.
        max_positive_loss: the share that was allowed.
        confidence: 1 − δ.
    """

    positives: int
    lost: int
    bound: float
    max_positive_loss: float
    confidence: float

    def __str__(self) -> str:
        return (
            f"with {self.confidence:.1%} confidence at most {self.bound:.2%} of the positives are lost (allowed "
            f"{self.max_positive_loss:.2%}; {self.lost} of {self.positives} were)"
        )
