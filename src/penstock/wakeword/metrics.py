"""Score detections in a stream: misses, false alarms per hour, latency.

Everything is counted from times alone: those of the alarms, and where the word was spoken (`Utterance`).

- An alarm hits a word from its beginning to ``slack_s`` after its end. Alarms and words are matched one to one so that
  as many words as possible are hit. An alarm without a word is false, and so is a second alarm for the same word: it
  would wake the device twice.
- The interval of the miss rate is the exact binomial one (Clopper-Pearson), that of the false alarm rate the exact
  Poisson one (Garwood). The latter assumes independent alarms; it is too narrow where one loud hour raises many.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError
from penstock.runtime.intervals import (
    binomial_interval,
    binomial_upper_bound,
    poisson_interval,
    poisson_upper_bound,
)

SLACK_S = 1.0  # how long after the end of a word an alarm still hits it: a window, smoothing and a hop
CONFIDENCE = 0.95

_HOUR_S = 3600
_ROUNDING_S = 1e-6  # a time at the end of a stream may exceed its length by this much

Times: TypeAlias = Sequence[float] | npt.NDArray[np.floating]


@dataclass(frozen=True)
class Utterance:
    """Where the wake word is in a stream."""

    begin_s: float
    end_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.begin_s < self.end_s < math.inf:
            raise DataError(
                f"an utterance must begin at 0 s or later and end after that, got {self.begin_s} to {self.end_s} s."
            )


@dataclass(frozen=True)
class DetectionMetrics:
    """Hits, misses and false alarms of a stream, or of several: metrics add up.

    Attributes:
        hours: length of the whole stream, words included.
        latencies_s: for each hit, the alarm's time minus the word's end; negative if the alarm precedes it.

    >>> one = DetectionMetrics(hits=9, misses=1, false_alarms=0, hours=1.0, latencies_s=(0.25,) * 9)
    >>> both = one + one
    >>> both.spoken, both.miss_rate, both.hours
    (20, 0.1, 2.0)
    """

    hits: int
    misses: int
    false_alarms: int
    hours: float
    latencies_s: tuple[float, ...]

    def __add__(self, other: DetectionMetrics) -> DetectionMetrics:
        return DetectionMetrics(
            hits=self.hits + other.hits,
            misses=self.misses + other.misses,
            false_alarms=self.false_alarms + other.false_alarms,
            hours=self.hours + other.hours,
            latencies_s=self.latencies_s + other.latencies_s,
        )

    @property
    def spoken(self) -> int:
        """How often the word was spoken."""
        return self.hits + self.misses

    @property
    def miss_rate(self) -> float:
        """Share of the words that were missed; NaN where none was spoken."""
        return self.misses / self.spoken if self.spoken else math.nan

    @property
    def false_alarms_per_hour(self) -> float:
        """False alarms per hour of the stream."""
        return self.false_alarms / self.hours

    def latency_s(self, share: float) -> float:
        """Return the latency that this share of the hits does not exceed; NaN without a hit."""
        return float(np.quantile(self.latencies_s, share)) if self.latencies_s else math.nan

    def miss_interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the exact binomial interval (Clopper-Pearson) of the miss rate; (0, 1) where none was spoken."""
        _check_confidence(confidence)
        return binomial_interval(self.misses, self.spoken, confidence)

    def miss_bound(self, confidence: float = CONFIDENCE) -> float:
        """Return the exact one-sided binomial bound of the miss rate."""
        _check_confidence(confidence)
        return binomial_upper_bound(self.misses, self.spoken, confidence)

    def false_alarm_interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the exact Poisson interval (Garwood) of the false alarms per hour."""
        _check_confidence(confidence)
        low, high = poisson_interval(self.false_alarms, confidence)
        return low / self.hours, high / self.hours

    def false_alarm_bound(self, confidence: float = CONFIDENCE) -> float:
        """Return the exact one-sided Poisson bound of the false alarms per hour."""
        _check_confidence(confidence)
        return poisson_upper_bound(self.false_alarms, confidence) / self.hours


def score_detections(
    alarms_s: Times, truths: Sequence[Utterance], *, duration_s: float, slack_s: float = SLACK_S
) -> DetectionMetrics:
    """Count hits, misses and false alarms of one stream.

    Args:
        alarms_s: when each alarm was raised, in any order.
        truths: where the word is, in any order.
        duration_s: length of the whole stream.
        slack_s: how long after its end a word may still be hit.

    >>> score_detections([1.4, 1.6, 9.0], [Utterance(0.5, 1.2), Utterance(4.0, 4.7)], duration_s=10)
    DetectionMetrics(hits=1, misses=1, false_alarms=2, hours=0.002777777777777778, latencies_s=(0.19999999999999996,))
    """
    if not 0 < duration_s < math.inf:
        raise DataError(f"duration_s must be finite and more than 0, got {duration_s}.")
    late = [truth for truth in truths if truth.end_s > duration_s + _ROUNDING_S]
    if late:
        raise DataError(
            f"an utterance from {late[0].begin_s:g} to {late[0].end_s:g} s lies outside the stream of "
            f"{duration_s:g} s. Expected times from the beginning of the stream."
        )
    alarms = np.asarray(alarms_s, np.float64)
    outside = alarms[~((alarms >= 0) & (alarms <= duration_s + _ROUNDING_S))]  # NaN too
    if len(outside):
        raise DataError(f"expected alarms between 0 and {duration_s:g} s, got one at {outside[0]:g} s.")
    pairs = match_alarms(alarms, truths, slack_s=slack_s)
    return DetectionMetrics(
        hits=len(pairs),
        misses=len(truths) - len(pairs),
        false_alarms=len(alarms) - len(pairs),
        hours=duration_s / _HOUR_S,
        latencies_s=tuple(float(alarms[alarm]) - truths[truth].end_s for alarm, truth in pairs),
    )


def match_alarms(alarms_s: Times, truths: Sequence[Utterance], *, slack_s: float = SLACK_S) -> list[tuple[int, int]]:
    """Match alarms with the words they hit, as many as possible; return the indices of both, in order of the alarms.

    Each alarm, in order of time, takes the open word that closes first. No matching has more pairs: in any best one,
    an alarm can be given that word without losing a pair, as every later alarm that fits it fits the other one too.

    >>> match_alarms([2.5, 1.0, 9.0], [Utterance(0.5, 1.2), Utterance(2.0, 2.4)])
    [(1, 0), (0, 1)]
    """
    if not 0 <= slack_s < math.inf:
        raise DataError(f"slack_s must be finite and at least 0, got {slack_s}.")
    alarms = np.asarray(alarms_s, np.float64)
    ahead = sorted(range(len(truths)), key=lambda truth: truths[truth].begin_s, reverse=True)
    closing: list[tuple[float, int]] = []  # words that an alarm may hit now, the first to close on top
    pairs = []
    for alarm in np.argsort(alarms, kind="stable").tolist():
        now = alarms[alarm]
        while ahead and truths[ahead[-1]].begin_s <= now:
            truth = ahead.pop()
            heapq.heappush(closing, (truths[truth].end_s + slack_s, truth))
        while closing and closing[0][0] < now:
            heapq.heappop(closing)
        if closing:
            pairs.append((alarm, heapq.heappop(closing)[1]))
    return pairs


def hours_needed(per_hour: float, confidence: float = CONFIDENCE, false_alarms: int = 0) -> float:
    """Return the hours of audio needed to claim at most ``per_hour`` false alarms per hour with this confidence.

    Args:
        false_alarms: how many occur in those hours. Without any it is the rule of three: 3.0 / per_hour.

    >>> [round(hours_needed(0.5, false_alarms=n), 2) for n in (0, 1, 2)]
    [5.99, 9.49, 12.59]
    """
    if not 0 < per_hour < math.inf:
        raise DataError(f"per_hour must be finite and more than 0, got {per_hour}.")
    _check_confidence(confidence)
    return poisson_upper_bound(false_alarms, confidence) / per_hour


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise DataError(f"confidence must be between 0 and 1, such as 0.95, got {confidence}.")
