"""Choose an operating point: score streams at many detection thresholds, and pick one of them.

The threshold is chosen on streams that the network was not trained on, and evaluated on others. See
`choose_operating_point`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError
from penstock.runtime.streaming.detector import DetectorConfig, alarms, smooth
from penstock.wakeword.metrics import DetectionMetrics, Times, Utterance, hours_needed, score_detections

_ROUNDING = 1e-9  # 1 false alarm in 2 h is 0.5 per hour, even where the 2 h are a rounded sum


@dataclass(frozen=True, eq=False)
class ScoredStream:
    """The scores of a stream's windows, from which its alarms follow at any threshold.

    Attributes:
        times_s: (windows,), the end of each window.
        scores: (windows,), log-odds of the word; -10 where a gate stopped the window.
        detector: how scores become alarms; its threshold is replaced.
        truths: where the word is.
    """

    times_s: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    detector: DetectorConfig
    truths: Sequence[Utterance]
    duration_s: float

    def alarms_at(self, threshold: float) -> Times:
        """Return the times of the alarms at a threshold."""
        return alarms(self.times_s, self._smoothed, self.detector.at(threshold))

    @cached_property
    def _smoothed(self) -> npt.NDArray[np.float64]:
        return smooth(self.scores, self.detector.smoothing)


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold and the metrics it gives."""

    threshold: float
    metrics: DetectionMetrics


def score_at(streams: Sequence[ScoredStream], threshold: float) -> DetectionMetrics:
    """Score all streams at one threshold, as if they were one."""
    return reduce(
        add, (score_detections(one.alarms_at(threshold), one.truths, duration_s=one.duration_s) for one in streams)
    )


def det_curve(streams: Sequence[ScoredStream], thresholds: Iterable[float]) -> list[OperatingPoint]:
    """Score all streams at each threshold: the detection error trade-off, by rising threshold."""
    return [OperatingPoint(threshold, score_at(streams, threshold)) for threshold in sorted(set(thresholds))]


def choose_operating_point(
    points: Sequence[OperatingPoint], *, per_hour: float, confidence: float | None = None, max_miss_rate: float = 0.0
) -> OperatingPoint:
    """Choose a point with at most ``per_hour`` false alarms per hour and few misses.

    All points within ``max_miss_rate`` are equally good, and so are those with the fewest misses. The middle of their
    widest range is chosen, so that a slightly different stream does not fall off its edge; the fewest misses alone are
    usually found right where false alarms begin.

    Without ``confidence``, the counted false alarms decide. As the best of many points is picked, their number is then
    an optimistic estimate for other streams: claim nothing from the same streams.

    With it, the exact Poisson bound of the false alarms is tested from the highest threshold down, and the first
    failure ends the sequence, even if lower thresholds would pass. In such a fixed sequence the confidence is that of a
    single test, so "at most ``per_hour`` false alarms per hour" may be claimed of the chosen point, for streams like
    these and thresholds fixed beforehand. A point is within ``max_miss_rate`` if its exact bound is; if none is, the
    one with the fewest misses is chosen, and their number is an optimistic estimate.

    Args:
        points: of one set of streams, at several thresholds, in any order.
        per_hour: false alarms per hour that are allowed.
        confidence: confidence of the claim, such as 0.95; None for no claim.
        max_miss_rate: share of the words that may be missed, such as 0.05; 0 for the fewest.
    """
    if not 0 <= max_miss_rate < 1:
        raise DataError(f"max_miss_rate must be at least 0 and below 1, such as 0.05, got {max_miss_rate:g}.")
    if not points:
        raise DataError("expected at least one operating point, got none.")
    if not all(point.metrics.spoken for point in points):
        raise DataError("the word is never spoken in the streams of these points: add a stream with the word.")
    ordered = sorted(points, key=lambda point: -point.threshold)
    allowed = _within_false_alarms(ordered, per_hour, confidence)
    fewest = min(ordered[i].metrics.misses for i in allowed)
    best = [
        i
        for i in allowed
        if ordered[i].metrics.misses == fewest or meets_miss_rate(ordered[i].metrics, max_miss_rate, confidence)
    ]
    runs = itertools.groupby(enumerate(best), key=lambda item: item[1] - item[0])  # neighbours stay together
    ranges = [[ordered[i] for _, i in run] for _, run in runs]
    widest = max(ranges, key=lambda points: points[0].threshold - points[-1].threshold)  # the higher of equals
    middle = (widest[0].threshold + widest[-1].threshold) / 2
    return min(widest, key=lambda point: abs(point.threshold - middle))


def meets_miss_rate(metrics: DetectionMetrics, max_miss_rate: float, confidence: float | None = None) -> bool:
    """Return whether few enough words are missed: by the exact bound, or without confidence by the count."""
    return (metrics.miss_rate if confidence is None else metrics.miss_bound(confidence)) <= max_miss_rate


def _within_false_alarms(ordered: Sequence[OperatingPoint], per_hour: float, confidence: float | None) -> list[int]:
    """Return the indices of the points with few enough false alarms; at least one."""
    if not 0 <= per_hour < math.inf:
        raise DataError(f"per_hour must be finite and at least 0, got {per_hour}.")
    limit = per_hour * (1 + _ROUNDING)
    if confidence is None:
        if allowed := [i for i, point in enumerate(ordered) if point.metrics.false_alarms_per_hour <= limit]:
            return allowed
        fewest = min(ordered, key=lambda point: point.metrics.false_alarms_per_hour)
        raise DataError(
            f"no threshold has at most {per_hour:g} false alarms per hour: the fewest are {_counted(fewest)}, "
            f"{fewest.metrics.false_alarms_per_hour:.3g} per hour. Try higher thresholds, mine more hard negatives, or "
            "allow more false alarms."
        )
    holds = (point.metrics.false_alarm_bound(confidence) <= limit for point in ordered)
    if allowed := [i for i, _ in enumerate(itertools.takewhile(bool, holds))]:
        return allowed
    highest = ordered[0]  # the test failed here
    count, needed = highest.metrics.false_alarms, hours_needed(per_hour, confidence)
    more = f", with {count} false alarms {hours_needed(per_hour, confidence, count):.3g} h" if count else ""
    raise DataError(
        f"at most {per_hour:g} false alarms per hour cannot be claimed with {100 * confidence:g} % confidence: the "
        f"lowest bound is {highest.metrics.false_alarm_bound(confidence):.3g} per hour ({_counted(highest)}). Without "
        f"a false alarm it takes {needed:.3g} h of audio{more}. Use longer streams or higher thresholds, or claim less."
    )


def _counted(point: OperatingPoint) -> str:
    return f"{point.metrics.false_alarms} in {point.metrics.hours:.3g} h, at threshold {point.threshold:g}"
