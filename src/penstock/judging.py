"""Judge a stream by its events, as people judge a wake word: words missed, false alarms an hour, how late.

All is counted from times alone: those of the alarms, and where the word was really spoken (`Spoken`).

- An alarm hits a word from its beginning to ``slack_s`` after its end. Alarms and words are paired one to one, and so
  that as many words as possible are hit. An alarm without a word is false. So is a second alarm for a word that is hit
  already: it would wake the device twice.
- A word is missed or not: the interval of the miss rate is the exact binomial one (Clopper and Pearson). False alarms
  come at any time: the interval of their rate is the exact Poisson one (Garwood). It takes them as independent; where
  one loud hour raises many at once, it is too narrow.
- An operating point is chosen on streams that the network was not trained on, and judged on others. See `choose`.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats

from penstock.errors import DataError

SLACK_S = 1.0
"""How long after the end of a word an alarm still counts as its own: a window, smoothing and a hop."""

CONFIDENCE = 0.95

_HOUR_S = 3600
_ROUNDING_S = 1e-6  # a time at the end of a stream may be this much behind it
_ROUNDING = 1e-9  # 1 false alarm in 2 h is 0.5 an hour, even where 2 h are summed from pieces

Times: TypeAlias = Sequence[float] | npt.NDArray[np.floating]


@dataclass(frozen=True)
class Spoken:
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
class Judgement:
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

    def __add__(self, other: Judgement) -> Judgement:
        return Judgement(
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
        high = float(stats.beta.isf(tail, self.misses + 1, self.hits)) if self.hits else 1.0
        return low, high

    def false_alarm_interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Return the exact Poisson interval (Garwood) of the false alarms an hour."""
        tail = _tail(confidence) / 2
        low = float(stats.gamma.ppf(tail, self.false_alarms)) / self.hours if self.false_alarms else 0.0
        return low, _most(self.false_alarms, tail) / self.hours

    def false_alarm_bound(self, confidence: float = CONFIDENCE) -> float:
        """Return the exact one-sided Poisson bound: at most so many false alarms an hour, with this confidence."""
        return _most(self.false_alarms, _tail(confidence)) / self.hours


def judge(alarms_s: Times, truths: Sequence[Spoken], *, duration_s: float, slack_s: float = SLACK_S) -> Judgement:
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
    return Judgement(
        hits=len(found),
        misses=len(truths) - len(found),
        false_alarms=len(alarms) - len(found),
        hours=duration_s / _HOUR_S,
        latencies_s=tuple(float(alarms[alarm]) - truths[truth].end_s for alarm, truth in found),
    )


def pair(alarms_s: Times, truths: Sequence[Spoken], *, slack_s: float = SLACK_S) -> list[tuple[int, int]]:
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


@dataclass(frozen=True)
class Trial:
    """A stream on which thresholds are tried.

    Attributes:
        alarms_at: gives the times of the alarms at a threshold.
    """

    alarms_at: Callable[[float], Times]
    truths: Sequence[Spoken]
    duration_s: float
    slack_s: float = SLACK_S


@dataclass(frozen=True)
class Point:
    """A threshold, and what is heard with it."""

    threshold: float
    judgement: Judgement

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise DataError(f"a threshold of {self.threshold} came: give a finite one.")


def judge_at(trials: Iterable[Trial], threshold: float) -> Judgement:
    """Judge all streams at one threshold, as if they were one."""
    judgements = [
        judge(trial.alarms_at(threshold), trial.truths, duration_s=trial.duration_s, slack_s=trial.slack_s)
        for trial in trials
    ]
    if not judgements:
        raise DataError("no stream came: give at least one trial.")
    return reduce(add, judgements)


def det(trials: Sequence[Trial], thresholds: Iterable[float]) -> list[Point]:
    """Judge all streams at each threshold: the points of a detection error trade-off, by rising threshold."""
    return [Point(threshold, judge_at(trials, threshold)) for threshold in sorted(set(thresholds))]


def choose(points: Sequence[Point], *, per_hour: float, confidence: float | None = None) -> Point:
    """Return the point with the fewest misses among those with at most so many false alarms an hour.

    Points next to each other often have equally few misses. Then the middle of the widest such range is taken, so that
    a stream that is a little different does not fall off its edge.

    Without ``confidence`` the false alarms counted are taken at their word. As the best of many points is picked, their
    number is then an optimistic guess of what other streams give: claim nothing from the same streams.

    With it, thresholds are tested from the highest down: does the exact Poisson bound hold? The first that fails ends
    it, and what lies below is out, whatever it counts. In such a fixed sequence the confidence is that of one test, so
    "at most ``per_hour`` false alarms an hour" may be claimed of the chosen point, for streams like these and for
    thresholds that were fixed before anybody looked at them. The misses at the point are optimistic either way.

    Args:
        points: of one set of streams, at several thresholds, in any order.
        per_hour: at most so many false alarms an hour.
        confidence: of the claim, such as 0.95; None for no claim.
    """
    ordered = _by_falling_threshold(points)
    allowed = _allowed(ordered, per_hour, confidence)
    fewest = min(ordered[place].judgement.misses for place in allowed)
    best = [place for place in allowed if ordered[place].judgement.misses == fewest]
    runs = itertools.groupby(enumerate(best), key=lambda item: item[1] - item[0])  # neighbours stay together
    ranges = [[ordered[place] for _, place in run] for _, run in runs]
    widest = max(ranges, key=lambda range_: range_[0].threshold - range_[-1].threshold)  # the higher of equals
    middle = (widest[0].threshold + widest[-1].threshold) / 2
    return min(widest, key=lambda point: abs(point.threshold - middle))


def miss_rate_at(points: Sequence[Point], per_hour: float) -> float:
    """Return the lowest miss rate among the points with at most so many false alarms an hour."""
    ordered = _by_falling_threshold(points)
    return min(ordered[place].judgement.miss_rate for place in _allowed(ordered, per_hour, None))


def _by_falling_threshold(points: Sequence[Point]) -> list[Point]:
    if not points:
        raise DataError("no point came: give det() at least one threshold.")
    if not all(point.judgement.spoken for point in points):
        raise DataError("the word is never spoken in the streams of these points: add a stream with words to miss.")
    return sorted(points, key=lambda point: -point.threshold)


def _allowed(ordered: Sequence[Point], per_hour: float, confidence: float | None) -> list[int]:
    """Return the places of the points whose false alarms are few enough; at least one."""
    if not 0 <= per_hour < math.inf:
        raise DataError(f"at most {per_hour} false alarms an hour came: give a finite number, 0 or more.")
    most = per_hour * (1 + _ROUNDING)
    if confidence is None:
        allowed = [i for i, point in enumerate(ordered) if point.judgement.false_alarms_per_hour <= most]
    else:
        holds = (point.judgement.false_alarm_bound(confidence) <= most for point in ordered)
        allowed = [i for i, _ in enumerate(itertools.takewhile(bool, holds))]
    if not allowed:
        _refuse(ordered, per_hour, confidence)
    return allowed


def _refuse(ordered: Sequence[Point], per_hour: float, confidence: float | None) -> NoReturn:
    if confidence is None:
        fewest = min(ordered, key=lambda point: point.judgement.false_alarms_per_hour)
        raise DataError(
            f"no threshold has at most {per_hour:g} false alarms an hour: the fewest are {_counted(fewest)}, "
            f"{fewest.judgement.false_alarms_per_hour:.3g} an hour. Try higher thresholds, train against what raises "
            "them, or allow more."
        )
    highest = ordered[0]  # the sequence ended with it
    count, needed = highest.judgement.false_alarms, hours_needed(per_hour, confidence)
    more = f", with {count} false alarms {hours_needed(per_hour, confidence, count):.3g} h" if count else ""
    raise DataError(
        f"at most {per_hour:g} false alarms an hour cannot be claimed with {100 * confidence:g} % confidence: the "
        f"lowest bound reached is {highest.judgement.false_alarm_bound(confidence):.3g} an hour ({_counted(highest)}). "
        f"Without a false alarm it takes {needed:.3g} h of audio{more}. Bring longer streams, try higher thresholds, "
        "or claim less."
    )


def _counted(point: Point) -> str:
    return f"{point.judgement.false_alarms} in {point.judgement.hours:.3g} h, at threshold {point.threshold:g}"


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
