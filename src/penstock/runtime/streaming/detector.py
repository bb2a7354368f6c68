"""From the scores of windows to events: smoothed, with hysteresis and a time of rest.

The score of a window is the log-odds that the network gives the word, limited to ±`LIMIT`; a window that a gate
stopped has -`LIMIT`. Log-odds rather than probabilities: two windows of .9999 and .99999 are not the same to a
threshold that is to be met once a day. Scores are smoothed by the mean of the last few windows.

    idle ── smoothed score reaches the threshold, and the rest is over ──▶ event ── falls below the release ──▶ idle

An event is told twice: at once when it is decided, and when it is over, with its peak.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError

LIMIT = 10.0
"""Log-odds are limited to this: one in 22,000."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DetectorConfig:
    """When scores are an event.

    Attributes:
        threshold: that a smoothed score must reach, between -10 and 10.
        release: below it the event is over; at most the threshold.
        smoothing: how many windows a score is the mean of.
        refractory_s: no second event begins within this time of the first one's decision.
    """

    threshold: float = 0.0
    off_threshold: float = 0.0
    smoothing: int = 3
    refractory_s: float = 1.0

    def __post_init__(self) -> None:
        if not (
            math.isfinite(self.threshold) and math.isfinite(self.off_threshold) and self.off_threshold <= self.threshold
        ):
            raise DataError(
                f"a threshold of {self.threshold:g} with a release at {self.off_threshold:g} came: both are numbers, and the "
                "release is at most the threshold."
            )
        if not (self.off_threshold > -LIMIT and self.threshold <= LIMIT):
            raise DataError(
                f"a threshold of {self.threshold:g} with a release at {self.off_threshold:g} came: scores lie between "
                f"-{LIMIT:g} and {LIMIT:g}, and what was stopped has -{LIMIT:g}, so both lie above that."
            )
        if self.smoothing < 1:
            raise DataError(f"smoothing = {self.smoothing} came: a score is the mean of 1 window or more.")
        if not 0 <= self.refractory_s < math.inf:
            raise DataError(f"refractory_s = {self.refractory_s:g} came: it is 0 s or more.")

    def at(self, threshold: float) -> DetectorConfig:
        """Return the decision at another threshold, with the release as far below it as before.

        >>> Decision(2.0, 0.5).at(4.0)
        Decision(threshold=4.0, release=2.5, smoothing=3, refractory_s=1.0)
        """
        lowest = min(threshold, -LIMIT + 0.01)
        return replace(
            self, threshold=threshold, off_threshold=max(threshold - (self.threshold - self.off_threshold), lowest)
        )


@dataclass(frozen=True)
class Event:
    """Something was heard.

    Attributes:
        label: its name.
        start_s: where the first window begins whose score rose to the release, in the stream's time.
        peak_s: the end of the window with the highest smoothed score so far.
        heard_s: when it was decided: the end of the window that reached the threshold.
        latency_s: from the end of the first window of the rise to the decision: what smoothing and threshold took.
        score: the highest smoothed score so far.
        over: whether it has ended; until then ``peak_s`` and ``score`` may rise.
    """

    label: str
    start_s: float
    peak_s: float
    heard_s: float
    latency_s: float
    score: float
    over: bool = False


class Hysteresis:
    """Decides as windows come.

    Args:
        label: the name of what is listened for.
        window_s: the length of a window.
    """

    def __init__(self, detector: DetectorConfig, label: str, window_s: float):
        self.detector, self.label, self.window_s = detector, label, window_s
        self._last: deque[float] = deque(maxlen=detector.smoothing)
        self._event: Event | None = None
        self._rise_s: float | None = None  # the end of the first window of the present rise
        self._ready_s = -math.inf
        self.smoothed = -LIMIT
        self.reset()

    def push(self, time_s: float, score: float) -> list[Event]:
        """Take the score of the window that ends at this time; return what began or ended with it."""
        detector, told = self.detector, []
        self._last.append(score)
        self.smoothed = smoothed = sum(self._last) / detector.smoothing
        if score < detector.off_threshold and smoothed < detector.off_threshold:
            self._rise_s = None
        elif self._rise_s is None:
            self._rise_s = time_s
        if self._event is not None and smoothed < detector.off_threshold:
            told += self.end()
            self._rise_s = time_s if score >= detector.off_threshold else None
        if self._event is not None and smoothed > self._event.score:
            self._event = replace(self._event, score=smoothed, peak_s=time_s)
        if self._event is None and smoothed >= detector.threshold and time_s >= self._ready_s:
            rise_s = time_s if self._rise_s is None else self._rise_s
            self._event = Event(self.label, rise_s - self.window_s, time_s, time_s, time_s - rise_s, smoothed)
            self._ready_s = time_s + detector.refractory_s
            told.append(self._event)
        return told

    def end(self) -> list[Event]:
        """End the event that is under way, if any, and return it."""
        event, self._event = self._event, None
        return [] if event is None else [replace(event, over=True)]

    def reset(self) -> list[Event]:
        """Begin anew, as behind a gap: no window before it supports what comes."""
        self._last.extend([-LIMIT] * self.detector.smoothing)
        self._rise_s, self.smoothed = None, -LIMIT
        return self.end()


def log_odds(logits: npt.NDArray[np.float32], label: int) -> Floats:
    """Return the log-odds of a class, limited: (..., classes) -> (...).

    >>> log_odds(np.array([0.0, 2.0], np.float32), 1).tolist(), log_odds(np.array([0.0, 1e9], np.float32), 1).tolist()
    (2.0, 10.0)
    """
    others = logits.astype(np.float64)
    others[..., label] = -np.inf
    top = others.max(axis=-1, keepdims=True)
    rest = top[..., 0] + np.log(np.exp(others - top).sum(axis=-1))
    return np.clip(logits[..., label] - rest, -LIMIT, LIMIT)  # type: ignore[no-any-return]


def smooth(scores: npt.NDArray[np.floating], smoothing: int) -> Floats:
    """Return the smoothed scores of a whole stream, as a `Hysteresis` has them one by one."""
    padded = np.concatenate([np.full(smoothing, -LIMIT), scores.astype(np.float64)])
    total = np.zeros(len(scores))
    for i in range(1, smoothing + 1):  # the oldest first, so that sums are those of a Decider to the last bit
        total += padded[i : i + len(scores)]
    return total / smoothing


def alarms(times_s: Floats, smoothed: Floats, detector: DetectorConfig) -> list[float]:
    """Return when events are decided in a whole stream: what a `Hysteresis` says one by one, and much faster.

    Args:
        times_s: the end of each window.
        smoothed: see `smooth`.
    """
    high = np.flatnonzero(smoothed >= detector.threshold)
    low = np.flatnonzero(smoothed < detector.off_threshold)
    found: list[float] = []
    at = 0  # the first window that may begin an event
    while (place := np.searchsorted(high, at)) < len(high):
        first = int(high[place])
        found.append(float(times_s[first]))
        behind = np.searchsorted(low, first)
        if behind == len(low):
            break
        rested = np.searchsorted(times_s, times_s[first] + detector.refractory_s)
        at = max(int(low[behind]), int(rested))
    return found
