"""Judge a stream by its events, as people judge a wake word: words missed, false alarms an hour, how late.

All is counted from times alone: those of the alarms, and where the word was really spoken (`Utterance`).

- An alarm hits a word from its beginning to ``slack_s`` after its end. Alarms and words are paired one to one, and so
  that as many words as possible are hit. An alarm without a word is false. So is a second alarm for a word that is hit
  already: it would wake the device twice.
- A word is missed or not: the interval of the miss rate is the exact binomial one (Clopper and Pearson). False alarms
  come at any time: the interval of their rate is the exact Poisson one (Garwood). It takes them as independent; where
  one loud hour raises many at once, it is too narrow.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats

from penstock.errors import DataError

SLACK_S = 1.0
"""How long after the end of a word an alarm still counts as its own: a window, smoothing and a hop."""

CONFIDENCE = 0.95

_HOUR_S = 3600
_ROUNDING_S = 1e-6  # a time at the end of a stream may be this much behind it

Times: TypeAlias = Sequence[float] | npt.NDArray[np.floating]


@dataclass(frozen=True)
class Utterance:
    """Where the word is in a stream."""

    begin_s: float
    end_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.begin_s < self.end_s < math.inf:
            raise DataError(
                f"a word from {self.begin_s} to {self.end_s} s came: it begins at 0 s or later and ends after that. "
                "Give both in seconds from the beginning of the stream."
            )


@dataclass(frozen=True)
class DetectionMetrics:
    """What was heard of a stream, or of several: judgements add up.

    Attributes:
        hours: of the whole stream, words included.
        latencies_s: of each hit, the alarm's time minus the word's end; negative where the alarm came before it.

    >>> one = Judgement(hits=9, misses=1, false_alarms=0, hours=1.0, latencies_s=(0.25,) * 9)
    >>> both = one + one
    >>> both.spoken, both.miss_rate, both.hours
    (20, 0.1, 2.0)
    """

    hits: int
    misses: int
    false_alarms: int
    hours: float
    latencies_s: tuple[float, ...]

    def __post_init__(self) -> None:
        counts = (self.hits, self.misses, self.false_alarms)
        if min(counts) < 0 or not 0 < self.hours < math.inf or len(self.latencies_s) != self.hits:
            raise DataError(
                f"{self.hits} hits, {self.misses} misses and {self.false_alarms} false alarms in {self.hours} h with "
                f"{len(self.latencies_s)} latencies came: no count is negative, the hours are positive, and each hit "
                "has one latency."
            )

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
        """The share of spoken words that were missed; NaN where none was spoken."""
        return self.misses / self.spoken if self.spoken else math.nan

    @property
    def false_alarms_per_hour(self) -> float:
        """False alarms in a mean hour of the stream."""
        return self.false_alarms / self.hours

    @property
    def median_latency_s(self) -> float:
        """The latency that half of the hits stay below; NaN without a hit."""
        return self._latency_s(0.5)

    @property
    def p95_latency_s(self) -> float:
        """The latency that 95 % of the hits stay below; NaN without a hit."""
        return self._latency_s(0.95)

    def _latency_s(self, share: float) -> float:
        return float(np.quantile(self.latencies_s, share)) if self.latencies_s else math.nan

    def miss_interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the exact binomial interval (Clopper and Pearson) of the miss rate; (0, 1) where none was spoken."""
        tail = _tail(confidence) / 2
        low = float(stats.beta.ppf(tail, self.misses, self.hits + 1)) if self.misses else 0.0
        return low, self._most_missed(tail)

    def miss_bound(self, confidence: float = CONFIDENCE) -> float:
        """Return the exact one-sided binomial bound: at most this share is missed, with this confidence."""
        return self._most_missed(_tail(confidence))

    def _most_missed(self, tail: float) -> float:
        return float(stats.beta.isf(tail, self.misses + 1, self.hits)) if self.hits else 1.0

    def false_alarm_interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the exact Poisson interval (Garwood) of the false alarms an hour."""
        tail = _tail(confidence) / 2
        low = float(stats.gamma.ppf(tail, self.false_alarms)) / self.hours if self.false_alarms else 0.0
        return low, _most(self.false_alarms, tail) / self.hours

    def false_alarm_bound(self, confidence: float = CONFIDENCE) -> float:
        """Return the exact one-sided Poisson bound: at most so many false alarms an hour, with this confidence."""
        return _most(self.false_alarms, _tail(confidence)) / self.hours


def score_detections(
    alarms_s: Times, truths: Sequence[Utterance], *, duration_s: float, slack_s: float = SLACK_S
) -> DetectionMetrics:
    """Count hits, misses and false alarms of one stream.

    Args:
        alarms_s: when each alarm was raised, in any order.
        truths: where the word is, in any order.
        duration_s: of the whole stream.
        slack_s: how long after its end a word may still be hit.

    >>> judge([1.4, 1.6, 9.0], [Spoken(0.5, 1.2), Spoken(4.0, 4.7)], duration_s=10)
    Judgement(hits=1, misses=1, false_alarms=2, hours=0.002777777777777778, latencies_s=(0.19999999999999996,))
    """
    if not 0 < duration_s < math.inf:
        raise DataError(f"a stream of {duration_s} s came: give its whole length in seconds, more than 0.")
    late = [truth for truth in truths if truth.end_s > duration_s + _ROUNDING_S]
    if late:
        raise DataError(
            f"a word from {late[0].begin_s:g} to {late[0].end_s:g} s came in a stream of {duration_s:g} s: give the "
            "length of the whole stream, and times from its beginning."
        )
    alarms = _alarms(alarms_s, duration_s)
    found = pair(alarms, truths, slack_s=slack_s)
    return DetectionMetrics(
        hits=len(found),
        misses=len(truths) - len(found),
        false_alarms=len(alarms) - len(found),
        hours=duration_s / _HOUR_S,
        latencies_s=tuple(float(alarms[alarm]) - truths[truth].end_s for alarm, truth in found),
    )


def pair(alarms_s: Times, truths: Sequence[Utterance], *, slack_s: float = SLACK_S) -> list[tuple[int, int]]:
    """Pair alarms with words that they hit, as many as possible; return the places of both, by the alarm's time.

    Each alarm in order of time takes that open word which closes first. No pairing has more: in any best one, an alarm
    can be handed that word without losing a pair, as every later alarm that could take it can take the other as well.

    >>> pair([2.5, 1.0, 9.0], [Spoken(0.5, 1.2), Spoken(2.0, 2.4)])
    [(1, 0), (0, 1)]
    """
    if not 0 <= slack_s < math.inf:
        raise DataError(f"slack_s = {slack_s} is not possible: give seconds, 0 or more.")
    alarms = _alarms(alarms_s, math.inf)
    coming = sorted(range(len(truths)), key=lambda truth: truths[truth].begin_s, reverse=True)
    closing: list[tuple[float, int]] = []  # the words that an alarm may hit by now, the first to close on top
    found = []
    for alarm in np.argsort(alarms, kind="stable").tolist():
        now = alarms[alarm]
        while coming and truths[coming[-1]].begin_s <= now:
            truth = coming.pop()
            heapq.heappush(closing, (truths[truth].end_s + slack_s, truth))
        while closing and closing[0][0] < now:
            heapq.heappop(closing)
        if closing:
            found.append((alarm, heapq.heappop(closing)[1]))
    return found


def hours_needed(per_hour: float, confidence: float = CONFIDENCE, false_alarms: int = 0) -> float:
    """Return the hours of audio that it takes to claim "at most so many false alarms an hour with this confidence".

    Args:
        false_alarms: how many there are in those hours. Without any it is the rule of three: 3.0 / per_hour.

    >>> [round(hours_needed(0.5, false_alarms=n), 2) for n in (0, 1, 2)]
    [5.99, 9.49, 12.59]
    """
    if not 0 < per_hour < math.inf:
        raise DataError(f"{per_hour} false alarms an hour cannot be claimed: give a number above 0, such as 0.5.")
    if false_alarms < 0:
        raise DataError(f"{false_alarms} false alarms came: give how many there are, 0 or more.")
    return _most(false_alarms, _tail(confidence)) / per_hour


def _alarms(alarms_s: Times, duration_s: float) -> npt.NDArray[np.float64]:
    """Return the times of alarms as an array, if they are times of the stream."""
    alarms = np.asarray(alarms_s, np.float64)
    if alarms.ndim != 1:
        raise DataError(f"alarms of shape {alarms.shape} came: give a flat list of times.")
    wrong = alarms[~((alarms >= 0) & (alarms <= duration_s + _ROUNDING_S) & np.isfinite(alarms))]
    if len(wrong):
        within = (
            f"between 0 and {duration_s:g} s, the length of the stream" if duration_s < math.inf else "0 s or later"
        )
        raise DataError(f"an alarm at {wrong[0]:g} s came: alarms are raised {within}. Give their times in seconds.")
    return alarms


def _most(count: int, tail: float) -> float:
    """Return the highest mean of a Poisson count that would give so few with at least this chance."""
    return float(stats.gamma.isf(tail, count + 1))


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise DataError(f"confidence = {confidence} is not possible: it lies between 0 and 1, such as 0.95.")
    return 1 - confidence
