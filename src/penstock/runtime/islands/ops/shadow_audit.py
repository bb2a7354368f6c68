"""Is the promise kept in the field? Some of what a gate stops is let through, to see what it was.

A gate that stops everything looks well: nobody complains of what never arrives. So an island lets a small share of the
stopped samples through to the end. They are drawn by chance, whatever they look like, so that counting the positives
among them, times how many more there are, tells without bias how many were lost. What is positive is what the end of
the network says; a label that people give is not there.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import NamedTuple

from penstock.errors import DeliveryError

CONFIDENCE = 0.95

MANY = 200
"""Counts above which an interval is approximated."""


class Interval(NamedTuple):
    """An estimate between two bounds."""

    low: float
    estimate: float
    high: float


@dataclass
class ShadowTally:
    """Samples of which some are let through to the end of the network, to see what it says.

    Attributes:
        seen: how many there are.
        judged: of those, let through and judged.
        positive: of those, positive.
    """

    seen: int = 0
    judged: int = 0
    positive: int = 0

    def judge(self, *, positive: bool) -> None:
        """Note what the end of the network says of one that was let through."""
        self.judged += 1
        self.positive += positive

    def positives(self, confidence: float) -> Interval:
        """Return how many of all are positive, as far as those that were judged tell."""
        unknown = self.seen - self.judged
        if not self.judged:
            return Interval(0.0, 0.0, float(unknown))
        times, least, most = self.seen / self.judged, self.positive, self.positive + unknown
        bounds = poisson_interval(self.positive, confidence)
        return Interval(*(float(min(max(times * count, least), most)) for count in bounds))


@dataclass
class ShadowAudit:
    """Draws what is let through, and counts what became of it.

    Positive is what the end of the network says, of any sample. A sample that passes here and is stopped by a gate
    further on may be positive too, and counts as passed: some of those are let through as well.

    Attributes:
        share: of the stopped samples that are let through.
        here: samples that this gate stopped.
        later: samples that passed it, and were stopped by a later one.
        passed: samples that no gate stopped, and that the end found positive.
        answered, dropped: samples that passed it, by whether anything is known of them.
    """

    share: float
    draw: random.Random = field(default_factory=random.Random, repr=False)
    here: ShadowTally = field(default_factory=ShadowTally)
    later: ShadowTally = field(default_factory=ShadowTally)
    passed: int = 0
    answered: int = 0
    dropped: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise DeliveryError(
                f"an audit of {self.share} is not possible: it is a share of the stopped, such as 0.001."
            )

    def takes(self, of: ShadowTally) -> bool:
        """Note a sample that was stopped; say whether it is let through."""
        if not self.share:
            return False
        of.seen += 1
        return self.draw.random() < self.share

    def lost_rate(self, confidence: float = CONFIDENCE) -> Interval | None:
        """Return the share of positives that the gate loses; None before there is anything to tell it from.

        What was counted among those judged is multiplied; the intervals are those of Poisson means. With several such
        counts they share the allowed error. Samples that passed and were dropped on their way are taken to be like
        those that were answered.
        """
        if not self.here.judged or (self.dropped and not self.answered):
            return None
        counts = 1 + bool(self.later.seen) + bool(self.dropped)
        confidence = 1 - (1 - confidence) / counts
        lost, later = self.here.positives(confidence), self.later.positives(confidence)
        passed, times = Interval(*[float(self.passed)] * 3), 1.0
        if self.dropped:
            passed, times = poisson_interval(self.passed, confidence), 1 + self.dropped / self.answered
        return Interval(
            _share(lost.low, times * (later.high + passed.high)),
            _share(lost.estimate, times * (later.estimate + passed.estimate)),
            _share(lost.high, times * (later.low + passed.low)),
        )


def _share(lost: float, passed: float) -> float:
    return lost / (lost + passed) if lost + passed else 0.0


def poisson_interval(count: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the exact interval of a Poisson mean of which ``count`` were seen (Garwood).

    >>> [round(bound, 4) for bound in poisson_interval(3)]
    [0.6187, 3, 8.7673]
    """
    tail = (1 - confidence) / 2
    if count > MANY:  # Wilson and Hilferty: right to four digits there, and quick
        z = NormalDist().inv_cdf(1 - tail)
        bounds = [
            n * (1 - 1 / (9 * n) + sign * z / (3 * math.sqrt(n))) ** 3 for n, sign in ((count, -1), (count + 1, 1))
        ]
        return Interval(bounds[0], count, bounds[1])
    low = 0.0 if count == 0 else _solve(lambda mean: 1 - poisson_cdf(count - 1, mean) - tail, count)
    return Interval(low, count, _solve(lambda mean: tail - poisson_cdf(count, mean), count))


def poisson_cdf(count: int, mean: float) -> float:
    """Return the probability of ``count`` or fewer, at this mean."""
    if mean <= 0:
        return 1.0
    return math.fsum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(count + 1))


def _solve(rising: Callable[[float], float], about: float) -> float:
    """Return where a rising function crosses 0, by halving."""
    low, high = 0.0, about + 10 * math.sqrt(about + 1) + 10
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


class Drift:
    """Flags a share that is no longer what it was: of what a gate stops, the first window against the last.

    Args:
        window: samples that are compared.
        errors: how many standard errors two windows may differ by; samples that follow each other are alike, so that
            it takes more of them than the textbook says.
    """

    def __init__(self, window: int = 2000, errors: float = 6.0):
        self._window, self._errors = window, errors
        self._first: list[bool] = []
        self._last: deque[bool] = deque(maxlen=window)

    def see(self, stopped: bool) -> None:
        """Note what the gate did with a sample."""
        if len(self._first) < self._window:
            self._first.append(stopped)
        else:
            self._last.append(stopped)

    @property
    def shares(self) -> tuple[float, float] | None:
        """The share of the first window and of the last; None before both are full."""
        if len(self._last) < self._window:
            return None
        return sum(self._first) / self._window, sum(self._last) / self._window

    @property
    def flagged(self) -> bool:
        """Whether they differ by more than chance."""
        shares = self.shares
        if shares is None:
            return False
        mean = sum(shares) / 2
        error = math.sqrt(max(2 * mean * (1 - mean) / self._window, 1e-12))
        return abs(shares[1] - shares[0]) > self._errors * error
