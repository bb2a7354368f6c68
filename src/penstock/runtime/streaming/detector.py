"""From the results of windows to events: scores, smoothing, hysteresis and a refractory time.

The score of a window is the log-odds that the network gives the word, limited to ±`LIMIT`; a stopped window scores
-`LIMIT`. Log-odds rather than probabilities, because a threshold that is met once a day must tell .9999 from .99999.
Scores are smoothed by the mean of the last few windows.

    idle ── smoothed score reaches threshold, refractory time is over ──▶ event ── falls below off_threshold ──▶ idle

An event is reported twice: when it is detected, and with its peak when it has ended.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError
from penstock.runtime.streaming.input_guard import InputQuality

if TYPE_CHECKING:  # the manifest imports this module
    from penstock.runtime.bundle.manifest import Manifest
    from penstock.runtime.streaming.config import StreamConfig

LIMIT = 10.0  # log-odds are limited to ±10: a probability of one in 22,000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DetectorConfig:
    """When scores make an event."""

    threshold: float = 0.0  # smoothed score that starts an event, above -10 and at most 10
    off_threshold: float = 0.0  # smoothed score below which the event ends; at most the threshold
    smoothing: int = 3  # number of windows that a score is averaged over
    refractory_s: float = 1.0  # minimum time between two detections

    def __post_init__(self) -> None:
        if not -LIMIT < self.off_threshold <= self.threshold <= LIMIT:  # false for NaN as well
            raise DataError(
                f"thresholds must satisfy -{LIMIT:g} < off_threshold <= threshold <= {LIMIT:g}, got threshold "
                f"{self.threshold:g} and off_threshold {self.off_threshold:g}"
            )
        if self.smoothing < 1:
            raise DataError(f"smoothing must be at least 1, got {self.smoothing}")
        if not 0 <= self.refractory_s < math.inf:
            raise DataError(f"refractory_s must be at least 0, got {self.refractory_s:g}")

    def at(self, threshold: float) -> DetectorConfig:
        """Return a copy with another threshold; off_threshold keeps its distance.

        >>> DetectorConfig(2.0, 0.5).at(4.0)
        DetectorConfig(threshold=4.0, off_threshold=2.5, smoothing=3, refractory_s=1.0)
        """
        lowest = min(threshold, -LIMIT + 0.01)
        return replace(
            self, threshold=threshold, off_threshold=max(threshold - (self.threshold - self.off_threshold), lowest)
        )


@dataclass(frozen=True)
class Event:
    """A detected word."""

    label: str
    start_s: float  # start of the first window whose score reached off_threshold, in stream time
    peak_s: float  # end of the window with the highest smoothed score so far
    detected_s: float  # time of detection: the end of the window that reached the threshold
    latency_s: float  # from the end of the first window of the rise to the detection, due to smoothing and threshold
    score: float  # highest smoothed score so far
    ended: bool = False  # whether the event has ended; until then ``peak_s`` and ``score`` may rise


class WindowResult(NamedTuple):
    """Result of one window."""

    time_s: float  # end of the window in stream time
    exit_stage: int  # the last stage that ran, counted from 1; 0 if no stage ran, for digital silence and gaps
    stopped: bool  # whether the window did not pass every gate
    gate_scores: tuple[float, ...]  # one probability per gate; NaN for gates that the window did not reach
    scores: tuple[float, ...]  # log-odds of each word; -10 for stopped windows
    smoothed: tuple[float, ...]  # smoothed score of each word
    events: tuple[Event, ...]  # events that were detected or ended with this window


@dataclass
class StreamStats:
    """Totals of a stream so far."""

    reached: list[int]  # number of windows that reached each stage
    silent: int = 0  # number of windows of digital silence, for which no stage ran
    input_quality: InputQuality = field(default_factory=InputQuality)

    @property
    def windows(self) -> int:
        return self.reached[0] + self.silent

    def macs(self, manifest: Manifest) -> int:
        """Return the multiply-accumulates of all stages that ran."""
        return sum(stage.macs * windows for stage, windows in zip(manifest.stages, self.reached, strict=True))

    def crossed_bytes(self, manifest: Manifest) -> int:
        """Return the payload bytes that crossed from one stage to the next."""
        links = zip(manifest.stages[:-1], self.reached[1:], strict=True)
        return sum(stage.output.payload_bytes * windows for stage, windows in links)


class Hysteresis:
    """Detect events of one word, window by window, each ``window_s`` long."""

    def __init__(self, config: DetectorConfig, label: str, window_s: float):
        self.config, self.label, self.window_s = config, label, window_s
        self._recent: deque[float] = deque(maxlen=config.smoothing)
        self._event: Event | None = None
        self._rise_s: float | None = None  # end of the first window of the present rise
        self._ready_s = -math.inf
        self.reset()

    def push(self, time_s: float, score: float) -> list[Event]:
        """Add the score of the window that ends at this time; return events that it starts or ends."""
        config, events = self.config, []
        self._recent.append(score)
        self.smoothed = smoothed = sum(self._recent) / config.smoothing
        if score < config.off_threshold and smoothed < config.off_threshold:
            self._rise_s = None
        elif self._rise_s is None:
            self._rise_s = time_s
        if self._event is not None and smoothed < config.off_threshold:
            events += self.end()
            self._rise_s = time_s if score >= config.off_threshold else None
        if self._event is not None and smoothed > self._event.score:
            self._event = replace(self._event, score=smoothed, peak_s=time_s)
        if self._event is None and smoothed >= config.threshold and time_s >= self._ready_s:
            rise_s = time_s if self._rise_s is None else self._rise_s
            self._event = Event(self.label, rise_s - self.window_s, time_s, time_s, time_s - rise_s, smoothed)
            self._ready_s = time_s + config.refractory_s
            events.append(self._event)
        return events

    def end(self) -> list[Event]:
        """End the current event, if any, and return it."""
        event, self._event = self._event, None
        return [] if event is None else [replace(event, ended=True)]

    def reset(self) -> list[Event]:
        """Forget all scores, as after a gap; end the current event, if any, and return it."""
        self._recent.extend([-LIMIT] * self.config.smoothing)
        self._rise_s, self.smoothed = None, -LIMIT
        return self.end()


class Detector:
    """Turn the results of windows into events, for every word of a bundle, and count them."""

    def __init__(self, manifest: Manifest, config: StreamConfig):
        stages, self._words = len(manifest.stages), config.words
        self._no_scores = (-LIMIT,) * len(config.words)  # of a stopped window
        self._no_gate_scores = (math.nan,) * (stages - 1)
        self._detectors = [Hysteresis(config.detector, manifest.labels[word], config.window_s) for word in config.words]
        self._exits = [0] * (stages + 1)  # number of windows by their exit stage; 0 for digital silence
        self._last_s = 0.0

    def push(
        self,
        time_s: float,
        exit_stage: int,
        stopped: bool,
        gate_scores: tuple[float, ...],
        logits: npt.NDArray[np.float32] | None,
    ) -> WindowResult:
        """Add a window: when it ends, and the fields of its `SampleResult`."""
        self._exits[exit_stage] += 1
        self._last_s = time_s
        scores = self._no_scores
        if logits is not None and np.isfinite(logits).all():
            scores = tuple(float(log_odds(logits, index)) for index in self._words)
        events: list[Event] = []
        for detector, score in zip(self._detectors, scores, strict=True):
            events += detector.push(time_s, score)
        smoothed = tuple(detector.smoothed for detector in self._detectors)
        return WindowResult(time_s, exit_stage, stopped, gate_scores, scores, smoothed, tuple(events))

    def push_silence(self, time_s: float) -> WindowResult:
        """Add a window of digital silence, for which no stage ran."""
        return self.push(time_s, 0, True, self._no_gate_scores, None)

    def push_gap(self, time_s: float) -> Iterator[WindowResult]:
        """Forget all scores at a gap that ends at ``time_s`` (inf: the end of the stream); yield what it ends."""
        events = tuple(event for detector in self._detectors for event in detector.reset())
        if events:
            at = self._last_s if math.isinf(time_s) else time_s
            yield WindowResult(at, 0, True, self._no_gate_scores, self._no_scores, self._no_scores, events)

    def end(self) -> list[Event]:
        """End the current events and return them."""
        return [event for detector in self._detectors for event in detector.end()]

    def stats(self, input_quality: InputQuality) -> StreamStats:
        """Return the totals so far."""
        reached = [sum(self._exits[stage:]) for stage in range(1, len(self._exits))]
        return StreamStats(reached, self._exits[0], input_quality)


def log_odds(logits: npt.NDArray[np.float32], label: int) -> Floats:
    """Return the log-odds of a class, limited to ±`LIMIT`: (..., classes) -> (...).

    >>> log_odds(np.array([0.0, 2.0], np.float32), 1).tolist(), log_odds(np.array([0.0, 1e9], np.float32), 1).tolist()
    (2.0, 10.0)
    """
    others = logits.astype(np.float64)
    others[..., label] = -np.inf
    top = others.max(axis=-1, keepdims=True)
    rest = top[..., 0] + np.log(np.exp(others - top).sum(axis=-1))
    return np.clip(logits[..., label] - rest, -LIMIT, LIMIT)  # type: ignore[no-any-return]


def smooth(scores: npt.NDArray[np.floating], smoothing: int) -> Floats:
    """Return the smoothed scores of a whole stream, equal to those of `Hysteresis`."""
    padded = np.concatenate([np.full(smoothing, -LIMIT), scores.astype(np.float64)])
    total = np.zeros(len(scores))
    for i in range(1, smoothing + 1):  # oldest first: the same order of additions as in Hysteresis, the same last bit
        total += padded[i : i + len(scores)]
    return total / smoothing


def alarms(times_s: Floats, smoothed: Floats, config: DetectorConfig) -> list[float]:
    """Return the detection times in a whole stream, equal to those of `Hysteresis` and much faster.

    Args:
        times_s: end of each window.
        smoothed: from `smooth`.
    """
    high = np.flatnonzero(smoothed >= config.threshold)
    low = np.flatnonzero(smoothed < config.off_threshold)
    times: list[float] = []
    start = 0  # the first window that may begin an event
    while (place := np.searchsorted(high, start)) < len(high):
        first = int(high[place])
        times.append(float(times_s[first]))
        next_low = np.searchsorted(low, first)
        if next_low == len(low):
            break
        ready = np.searchsorted(times_s, times_s[first] + config.refractory_s)
        start = max(int(low[next_low]), int(ready))
    return times
