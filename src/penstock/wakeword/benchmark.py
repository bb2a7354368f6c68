"""Benchmark bundles on synthetic streams, as a device would run them: detections and compute.

`run_stream` feeds a stream to the device's own `Listener`, block by block, and keeps the score of every window, the
events, the number of windows that reached each stage, and the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.datasets.audio_clips import RATE_HZ
from penstock.errors import DataError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.streaming.detector import Event, StreamStats, WindowResult
from penstock.runtime.streaming.frontend import Sensor
from penstock.runtime.streaming.listener import Listener, stream_config_of
from penstock.wakeword.clips import ClipSet
from penstock.wakeword.metrics import DetectionMetrics, score_detections
from penstock.wakeword.streams import StreamSpec, SyntheticStream, mlperf_tiny, synthesize_stream
from penstock.wakeword.thresholds import OperatingPoint, ScoredStream, det_curve

BLOCK = 1600  # samples pushed at a time: 100 ms, as a microphone delivers them
THRESHOLDS = tuple(np.linspace(-9.8, 9.9, 198).round(1).tolist())
"""Thresholds of the detection error trade-off."""

SITUATIONS = ("silence", "noise", "speech", "keyword")
"""What the cost is measured in: one kind of scene; "keyword" is speech in which every other word is the wake word."""


@dataclass(frozen=True)
class StreamCost:
    """What a second of sound costs.

    Attributes:
        macs: multiply-accumulates of the stages.
        ms: milliseconds on one thread of this machine, front end included.
        crossed_bytes: payload between stages.
        reached: share of the windows that reach each stage.
    """

    macs: float
    ms: float
    crossed_bytes: float
    reached: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class StreamRun:
    """A bundle's run over a stream.

    Attributes:
        times_s, scores, exit_stage: of each window: its end, the log-odds of the word, and the stage at which it ended
            (counted from 1; 0 for digital silence, which no stage runs).
        events: detections, in order.
        counts: windows that reached each stage.
        seconds: run time.
    """

    manifest: Manifest
    stream: SyntheticStream
    times_s: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    exit_stage: npt.NDArray[np.int64]
    events: tuple[Event, ...]
    counts: StreamStats
    seconds: float

    @property
    def metrics(self) -> DetectionMetrics:
        """Metrics of the events, at the bundle's own threshold."""
        return score_detections(
            [event.detected_s for event in self.events], self.stream.truths, duration_s=self.stream.seconds
        )

    @property
    def cost(self) -> StreamCost:
        """Cost of a second of this stream."""
        counts, seconds = self.counts, self.stream.seconds
        return StreamCost(
            macs=counts.macs(self.manifest) / seconds,
            ms=1000 * self.seconds / seconds,
            crossed_bytes=counts.crossed_bytes(self.manifest) / seconds,
            reached=tuple(reached / counts.windows for reached in counts.reached),
        )

    @property
    def stopped_early(self) -> float:
        """Share of the windows in the first stage that never reached the last one."""
        return 1 - self.counts.reached[-1] / max(1, self.counts.reached[0])

    def scored_stream(self) -> ScoredStream:
        """Return a stream that can be scored at any threshold."""
        detector = stream_config_of(self.manifest).detector
        return ScoredStream(self.times_s, self.scores, detector, self.stream.truths, self.stream.seconds)


def run_stream(bundle: Bundle, stream: SyntheticStream) -> StreamRun:
    """Run a bundle over a stream, block by block, on one thread. Of several words, only the first is recorded."""
    listener = Listener(bundle)
    word = bundle.manifest.labels[listener.stream_config.words[0]]
    results: list[WindowResult] = []
    start = time.perf_counter()
    for first in range(0, len(stream.samples), BLOCK):
        results += listener.push(stream.samples[first : first + BLOCK])
    seconds = time.perf_counter() - start
    return StreamRun(
        bundle.manifest,
        stream,
        times_s=np.array([result.time_s for result in results]),
        scores=np.array([result.scores[0] for result in results]),
        exit_stage=np.array([result.exit_stage for result in results]),
        events=tuple(event for result in results for event in result.events if event.label == word and not event.ended),
        counts=listener.stats,
        seconds=seconds,
    )


def fastest_runs(
    bundles: Mapping[str, Bundle], stream: SyntheticStream, repeats: int, *, log: Callable[[int], None] = lambda i: None
) -> dict[str, StreamRun]:
    """Run bundles over a stream several times, in turns; return the fastest run of each. ``log`` gets the turn."""
    fastest: dict[str, StreamRun] = {}
    for number in range(1, repeats + 1):
        log(number)
        for name, bundle in bundles.items():
            run = run_stream(bundle, stream)
            if name not in fastest or run.seconds < fastest[name].seconds:
                fastest[name] = run
    return fastest


def situation_streams(clips: ClipSet, word: str, *, seconds: float, seed: int) -> Iterator[tuple[str, SyntheticStream]]:
    """Synthesize a stream for each situation."""
    for number, name in enumerate(SITUATIONS):
        times, kind = (round(seconds / 5), "speech") if name == "keyword" else (0, name)
        yield name, synthesize_stream(StreamSpec(seconds, word, times, shares={kind: 1.0}), clips, seed + number)


@dataclass(frozen=True, eq=False)
class BenchmarkResult:
    """The results of one bundle.

    Attributes:
        tiny: run over a stream like MLPerf Tiny's.
        long: run over hours of other words, noise and silence, with every clip of the word once.
        points: detection error trade-off on the long stream.
        costs: cost of a second of sound in each situation.
    """

    tiny: StreamRun
    long: StreamRun
    points: tuple[OperatingPoint, ...]
    costs: Mapping[str, StreamCost]

    @property
    def operating_point(self) -> OperatingPoint:
        """The bundle's own threshold, and its metrics on the long stream."""
        return OperatingPoint(stream_config_of(self.long.manifest).detector.threshold, self.long.metrics)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        long, cost = self.long, self.long.cost
        return {
            "threshold": self.operating_point.threshold,
            "tiny": _metrics_to_json(self.tiny.metrics),
            "long": {
                **_metrics_to_json(long.metrics),
                "stopped_early": long.stopped_early,
                "macs_per_s": cost.macs,
                "crossed_bytes_per_s": cost.crossed_bytes,
                "seconds_per_hour": cost.ms / 1000 * 3600,
            },
            "points": [[point.threshold, point.metrics.misses, point.metrics.false_alarms] for point in self.points],
            "upkeep": {name: asdict(cost) for name, cost in self.costs.items()},
        }


def run_benchmark(
    bundles: Mapping[str, Bundle],
    clips: ClipSet,
    word: str,
    *,
    hours: float = 4.0,
    seed: int = 0,
    repeats: int = 3,
    log: Callable[[str], None] = lambda text: None,
) -> dict[str, BenchmarkResult]:
    """Benchmark bundles on the same streams, in turns.

    Args:
        clips: test clips, of speakers that no bundle was trained or calibrated on.
        hours: length of the long stream.
        repeats: repetitions of everything that is timed; the best counts.
        log: is called with progress messages.

    Raises:
        DataError: when a bundle listens for another word or at another sample rate.
    """
    for name, bundle in bundles.items():
        _check_listens(name, bundle, word)
    times = len(clips.words[word])
    tiny = synthesize_stream(mlperf_tiny(word, min(50, times)), clips, seed)
    log(f"{tiny.seconds:,.0f} s like MLPerf Tiny's stream")
    tiny_runs = {name: run_stream(bundle, tiny) for name, bundle in bundles.items()}
    long = synthesize_stream(StreamSpec(hours * 3600, word, times), clips, seed + 1)
    title = f"{hours:g} h of other words, noise and silence: run"
    long_runs = fastest_runs(bundles, long, repeats, log=lambda number: log(f"{title} {number} of {repeats}"))
    log("cost of a second of sound")
    situations = {
        name: fastest_runs(bundles, stream, repeats)
        for name, stream in situation_streams(clips, word, seconds=120.0, seed=seed + 2)
    }
    return {
        name: BenchmarkResult(
            tiny_runs[name],
            long_runs[name],
            tuple(det_curve([long_runs[name].scored_stream()], THRESHOLDS)),
            {situation: runs[name].cost for situation, runs in situations.items()},
        )
        for name in bundles
    }


def _check_listens(name: str, bundle: Bundle, word: str) -> None:
    stream_config = stream_config_of(bundle.manifest)
    frontend = stream_config.frontend
    listens_for = bundle.manifest.labels[stream_config.words[0]]
    if isinstance(frontend, Sensor) or frontend.rate_hz != RATE_HZ or listens_for != word:
        source = "a sensor" if isinstance(frontend, Sensor) else f"sound at {frontend.rate_hz} Hz"
        raise DataError(
            f"{name}: expected a bundle that listens for '{word}' in sound at {RATE_HZ} Hz, got one for "
            f"'{listens_for}' in {source}."
        )


def _metrics_to_json(metrics: DetectionMetrics) -> dict[str, Any]:
    counts = asdict(metrics)
    del counts["latencies_s"]
    return {
        **counts,
        "spoken": metrics.spoken,
        "miss_rate": metrics.miss_rate,
        "miss_interval": list(metrics.miss_interval()),
        "false_alarms_per_hour": metrics.false_alarms_per_hour,
        "false_alarm_interval": list(metrics.false_alarm_interval()),
        "median_latency_s": metrics.latency_s(0.5) if metrics.hits else None,
        "p95_latency_s": metrics.latency_s(0.95) if metrics.hits else None,
    }
