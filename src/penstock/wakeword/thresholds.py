"""Choose an operating point: the threshold of a decision, tried on streams and judged at each.

It is chosen on streams that the network was not trained on, and judged on others. See `choose`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError
from penstock.runtime.streaming.detector import DetectorConfig, alarms, smooth
from penstock.wakeword.metrics import SLACK_S, DetectionMetrics, Times, Utterance, hours_needed, score_detections

_ROUNDING = 1e-9  # 1 false alarm in 2 h is 0.5 an hour, even where 2 h are summed from pieces


@dataclass(frozen=True)
class ScoredStream:
    """A stream on which thresholds are tried.

    Attributes:
        alarms_at: gives the times of the alarms at a threshold.
    """

    alarms_at: Callable[[float], Times]
    truths: Sequence[Utterance]
    duration_s: float
    slack_s: float = SLACK_S


def scored_stream(
    times_s: npt.NDArray[np.float64],
    scores: npt.NDArray[np.float64],
    detector: DetectorConfig,
    truths: Sequence[Utterance],
    duration_s: float,
) -> ScoredStream:
    """Return a stream as thresholds are tried on it, from the end and the score of each of its windows."""
    smoothed = smooth(scores, detector.smoothing)
    return ScoredStream(lambda threshold: alarms(times_s, smoothed, detector.at(threshold)), truths, duration_s)


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold, and what is heard with it."""

    threshold: float
    metrics: DetectionMetrics

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise DataError(f"a threshold of {self.threshold} came: give a finite one.")


def score_at(trials: Iterable[ScoredStream], threshold: float) -> DetectionMetrics:
    """Judge all streams at one threshold, as if they were one."""
    judgements = [
        score_detections(
            scored_stream.alarms_at(threshold),
            scored_stream.truths,
            duration_s=scored_stream.duration_s,
            slack_s=scored_stream.slack_s,
        )
        for scored_stream in trials
    ]
    if not judgements:
        raise DataError("no stream came: give at least one trial.")
    return reduce(add, judgements)


def det(trials: Sequence[ScoredStream], thresholds: Iterable[float]) -> list[OperatingPoint]:
    """Judge all streams at each threshold: the points of a detection error trade-off, by rising threshold."""
    return [OperatingPoint(threshold, score_at(trials, threshold)) for threshold in sorted(set(thresholds))]


def choose(
    points: Sequence[OperatingPoint], *, per_hour: float, confidence: float | None = None, missed: float = 0.0
) -> OperatingPoint:
    """Return a point with at most so many false alarms an hour that misses few words.

    Points that miss no more than ``missed`` allows are equally good, and so are those with the fewest misses. The
    middle of the widest range of them is taken, so that a stream that is a little different does not fall off its edge.
    The fewest misses alone are mostly found where the false alarms begin.

    Without ``confidence`` the false alarms counted are taken at their word. As the best of many points is picked, their
    number is then an optimistic guess of what other streams give: claim nothing from the same streams.

    With it, thresholds are tested from the highest down: does the exact Poisson bound hold? The first that fails ends
    it, and what lies below is out, whatever it counts. In such a fixed sequence the confidence is that of one test, so
    "at most ``per_hour`` false alarms an hour" may be claimed of the chosen point, for streams like these and for
    thresholds that were fixed before anybody looked at them. Misses are few when their exact bound is, too; but where
    no point has so few, the fewest are taken, and those are optimistic.

    Args:
        points: of one set of streams, at several thresholds, in any order.
        per_hour: at most so many false alarms an hour.
        confidence: of the claim, such as 0.95; None for no claim.
        missed: the share of the words that may be missed, such as 0.05; 0 for the fewest.
    """
    if not 0 <= missed < 1:
        raise DataError(f"missed = {missed:g} came: it is a share of the words, from 0 to below 1, such as 0.05.")
    ordered = _by_falling_threshold(points)
    allowed = _allowed(ordered, per_hour, confidence)
    fewest = min(ordered[place].metrics.misses for place in allowed)
    judged = {place: ordered[place].metrics for place in allowed}
    best = [i for i, one in judged.items() if one.misses == fewest or misses_few(one, missed, confidence)]
    runs = itertools.groupby(enumerate(best), key=lambda item: item[1] - item[0])  # neighbours stay together
    ranges = [[ordered[place] for _, place in run] for _, run in runs]
    widest = max(ranges, key=lambda range_: range_[0].threshold - range_[-1].threshold)  # the higher of equals
    middle = (widest[0].threshold + widest[-1].threshold) / 2
    return min(widest, key=lambda point: abs(point.threshold - middle))


def misses_few(judged: DetectionMetrics, missed: float, confidence: float | None = None) -> bool:
    """Say whether at most this share of the words is missed: by the exact bound, or without confidence as counted."""
    return (judged.miss_rate if confidence is None else judged.miss_bound(confidence)) <= missed


def miss_rate_at(points: Sequence[OperatingPoint], per_hour: float) -> float:
    """Return the lowest miss rate among the points with at most so many false alarms an hour."""
    ordered = _by_falling_threshold(points)
    return min(ordered[place].metrics.miss_rate for place in _allowed(ordered, per_hour, None))


def _by_falling_threshold(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    if not points:
        raise DataError("no point came: give det() at least one threshold.")
    if not all(point.metrics.spoken for point in points):
        raise DataError("the word is never spoken in the streams of these points: add a stream with words to miss.")
    return sorted(points, key=lambda point: -point.threshold)


def _allowed(ordered: Sequence[OperatingPoint], per_hour: float, confidence: float | None) -> list[int]:
    """Return the places of the points whose false alarms are few enough; at least one."""
    if not 0 <= per_hour < math.inf:
        raise DataError(f"at most {per_hour} false alarms an hour came: give a finite number, 0 or more.")
    most = per_hour * (1 + _ROUNDING)
    if confidence is None:
        allowed = [i for i, point in enumerate(ordered) if point.metrics.false_alarms_per_hour <= most]
    else:
        holds = (point.metrics.false_alarm_bound(confidence) <= most for point in ordered)
        allowed = [i for i, _ in enumerate(itertools.takewhile(bool, holds))]
    if not allowed:
        _refuse(ordered, per_hour, confidence)
    return allowed


def _refuse(ordered: Sequence[OperatingPoint], per_hour: float, confidence: float | None) -> NoReturn:
    if confidence is None:
        fewest = min(ordered, key=lambda point: point.metrics.false_alarms_per_hour)
        raise DataError(
            f"no threshold has at most {per_hour:g} false alarms an hour: the fewest are {_counted(fewest)}, "
            f"{fewest.metrics.false_alarms_per_hour:.3g} an hour. Try higher thresholds, train against what raises "
            "them, or allow more."
        )
    highest = ordered[0]  # the sequence ended with it
    count, needed = highest.metrics.false_alarms, hours_needed(per_hour, confidence)
    more = f", with {count} false alarms {hours_needed(per_hour, confidence, count):.3g} h" if count else ""
    raise DataError(
        f"at most {per_hour:g} false alarms an hour cannot be claimed with {100 * confidence:g} % confidence: the "
        f"lowest bound reached is {highest.metrics.false_alarm_bound(confidence):.3g} an hour ({_counted(highest)}). "
        f"Without a false alarm it takes {needed:.3g} h of audio{more}. Bring longer streams, try higher thresholds, "
        "or claim less."
    )


def _counted(point: OperatingPoint) -> str:
    return f"{point.metrics.false_alarms} in {point.metrics.hours:.3g} h, at threshold {point.threshold:g}"
