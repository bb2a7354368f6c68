"""Hear a bundle out: on composed streams, as a device would hear them, with what it took.

An audition runs the very `Listener` of a device over a stream, block by block, and keeps what it needs to be judged:
the score of every window, the events, how many windows reached each stage, and the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.datasets.sounds import RATE_HZ
from penstock.errors import DataError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.streaming.detector import Event
from penstock.runtime.streaming.frontend import Sensor
from penstock.runtime.streaming.listener import Counts, Listener, stream_config_of
from penstock.wakeword.clips import ClipSet
from penstock.wakeword.metrics import DetectionMetrics, score_detections
from penstock.wakeword.streams import StreamSpec, SyntheticStream, mlperf_tiny, synthesize_stream
from penstock.wakeword.thresholds import OperatingPoint, ScoredStream, det, scored_stream

BLOCK = 1600
"""Samples at a time: 100 ms, as a microphone gives them."""

THRESHOLDS = tuple(np.linspace(-9.8, 9.9, 198).round(1).tolist())
"""That a curve is drawn over."""

SITUATIONS: Mapping[str, Mapping[str, float]] = {
    "silence": {"silence": 1.0},
    "noise": {"noise": 1.0},
    "speech": {"speech": 1.0},
    "keyword": {"speech": 1.0},
}
"""What there is to hear while the cost is measured; in the last one every other word is the one."""


@dataclass(frozen=True, eq=False)
class StreamRun:
    """What a bundle heard of a stream.

    Attributes:
        times_s, scores, stopped_at: of each window: its end, the log-odds of the word, and which gate stopped it.
        events: as they began.
        counts: windows that reached each stage.
        seconds: that it took.
    """

    manifest: Manifest
    stream: SyntheticStream
    times_s: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    stopped_at: npt.NDArray[np.int64]
    events: tuple[Event, ...]
    counts: Counts
    seconds: float

    @property
    def metrics(self) -> DetectionMetrics:
        """What its events are worth, at the threshold of the bundle."""
        return score_detections(
            [event.heard_s for event in self.events], self.stream.truths, duration_s=self.stream.seconds
        )

    @property
    def stopped_early(self) -> float:
        """The share of the windows that the first stage saw which never reached the last one."""
        return 1 - self.counts.reached[-1] / max(1, self.counts.reached[0])

    def scored_stream(self) -> ScoredStream:
        """Return it as other thresholds are tried on it."""
        detector = stream_config_of(self.manifest).detector
        return scored_stream(self.times_s, self.scores, detector, self.stream.truths, self.stream.seconds)


def hear(bundle: Bundle, stream: SyntheticStream, *, chain: Pipeline | None = None) -> StreamRun:
    """Let a bundle listen to a stream, block by block, on one thread; of several words the first is judged."""
    listener = Listener(bundle, chain=chain)
    word = bundle.manifest.labels[listener.stream_config.words[0]]
    times: list[float] = []
    scores: list[float] = []
    stopped: list[int] = []
    events: list[Event] = []
    began = time.perf_counter()
    for start in range(0, len(stream.samples), BLOCK):
        for heard in listener.push(stream.samples[start : start + BLOCK]):
            times.append(heard.time_s)
            scores.append(heard.scores[0])
            stopped.append(heard.stopped_at)
            events += [event for event in heard.events if event.label == word and not event.over]
    seconds = time.perf_counter() - began
    return StreamRun(
        bundle.manifest,
        stream,
        np.array(times),
        np.array(scores),
        np.array(stopped),
        tuple(events),
        listener.counts,
        seconds,
    )


@dataclass(frozen=True)
class StreamCost:
    """What a second of sound costs.

    Attributes:
        macs: multiply-accumulates of the stages.
        ms: on one thread of this machine, the front end included.
        crossed_bytes: that go from one stage to the next.
        reached: the share of windows that reach each stage.
    """

    macs: float
    ms: float
    crossed_bytes: float
    reached: tuple[float, ...]


def measure_cost(
    bundles: Mapping[str, Bundle], streams: Sequence[SyntheticStream], *, repeats: int = 3
) -> dict[str, StreamCost]:
    """Measure what listening costs: all bundles on the same streams, in turns, and of the times the best."""
    best: dict[str, StreamCost] = {}
    for _ in range(repeats):
        for name, bundle in bundles.items():
            heard = [hear(bundle, stream) for stream in streams]
            found = _upkeep(bundle.manifest, heard)
            if name not in best or found.ms < best[name].ms:
                best[name] = found
    return best


def situations(of: ClipSet, word: str, *, seconds: float, seed: int) -> Iterator[tuple[str, SyntheticStream]]:
    """Compose a stream of each situation."""
    for number, (name, shares) in enumerate(SITUATIONS.items()):
        times = round(seconds / 5) if name == "keyword" else 0
        yield name, synthesize_stream(StreamSpec(seconds, word, times, shares=shares), of, seed + number)


def _upkeep(manifest: Manifest, heard: Sequence[StreamRun]) -> StreamCost:
    seconds = sum(one.stream.seconds for one in heard)
    windows = sum(one.counts.windows for one in heard)
    return StreamCost(
        macs=sum(one.counts.macs(manifest) for one in heard) / seconds,
        ms=1000 * sum(one.seconds for one in heard) / seconds,
        crossed_bytes=sum(one.counts.crossed_bytes(manifest) for one in heard) / seconds,
        reached=tuple(sum(one.counts.reached[i] for one in heard) / windows for i in range(len(manifest.stages))),
    )


@dataclass(frozen=True, eq=False)
class BenchmarkResult:
    """All that is known of a bundle after it was heard out.

    Attributes:
        tiny: heard of a stream as MLPerf Tiny has it.
        long: heard of hours of other words, noise and silence, with every clip of the word once.
        points: of the threshold, on the long stream.
        seconds: that the long stream took, the best of several times.
        upkeep: what a second costs in each situation.
    """

    tiny: StreamRun
    long: StreamRun
    points: tuple[OperatingPoint, ...]
    seconds: float
    measure_cost: Mapping[str, StreamCost]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "threshold": stream_config_of(self.long.manifest).detector.threshold,
            "tiny": _plain(self.tiny.metrics),
            "long": {
                **_plain(self.long.metrics),
                "stopped_early": self.long.stopped_early,
                "macs_per_s": self.long.counts.macs(self.long.manifest) / self.long.stream.seconds,
                "crossed_bytes_per_s": self.long.counts.crossed_bytes(self.long.manifest) / self.long.stream.seconds,
                "seconds_per_hour": self.seconds / self.long.stream.seconds * 3600,
            },
            "points": [[point.threshold, point.metrics.misses, point.metrics.false_alarms] for point in self.points],
            "upkeep": {name: asdict(cost) for name, cost in self.measure_cost.items()},
        }


def run_benchmark(
    bundles: Mapping[str, Bundle],
    of: ClipSet,
    word: str,
    *,
    hours: float = 4.0,
    seed: int = 0,
    repeats: int = 3,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, BenchmarkResult]:
    """Hear bundles out on the same streams, in turns.

    Args:
        of: test material: voices that nobody was trained or calibrated on.
        hours: of the long stream.
        repeats: of all that is timed; the best counts.
        say: is told what goes on.

    Raises:
        DataError: when a bundle listens for something else, or to another rate.
    """
    for name, bundle in bundles.items():
        _check_listens(name, bundle, word)
    times = len(of.words[word])
    tiny = synthesize_stream(replace(mlperf_tiny(word), times=min(50, times)), of, seed)
    say(f"{tiny.seconds:,.0f} s as MLPerf Tiny has them")
    heard_tiny = {name: hear(bundle, tiny) for name, bundle in bundles.items()}
    long = synthesize_stream(StreamSpec(hours * 3600, word, times), of, seed + 1)
    seconds = dict.fromkeys(bundles, math.inf)
    heard_long: dict[str, StreamRun] = {}
    for number in range(repeats):
        say(f"{hours:g} h of other words, noise and silence, {number + 1} of {repeats} times")
        for name, bundle in bundles.items():
            heard_long[name] = hear(bundle, long)
            seconds[name] = min(seconds[name], heard_long[name].seconds)
    say("what a second costs")
    costs = {
        name: measure_cost(bundles, [stream], repeats=repeats)
        for name, stream in situations(of, word, seconds=120.0, seed=seed + 2)
    }
    return {
        name: BenchmarkResult(
            heard_tiny[name],
            heard_long[name],
            tuple(det([heard_long[name].scored_stream()], THRESHOLDS)),
            seconds[name],
            {situation: found[name] for situation, found in costs.items()},
        )
        for name in bundles
    }


def _check_listens(name: str, bundle: Bundle, word: str) -> None:
    stream_config = stream_config_of(bundle.manifest)
    listens_for = bundle.manifest.labels[stream_config.words[0]]
    if isinstance(stream_config.frontend, Sensor) or stream_config.frontend.rate_hz != RATE_HZ or listens_for != word:
        what = (
            "a sensor"
            if isinstance(stream_config.frontend, Sensor)
            else f"sound at {stream_config.frontend.rate_hz} Hz"
        )
        raise DataError(
            f"{name} listens for '{listens_for}' in {what}, and the streams have '{word}' in sound at {RATE_HZ} Hz: "
            "judge bundles of one word, and of this rate."
        )


def _plain(judged: DetectionMetrics) -> dict[str, Any]:
    plain = asdict(judged)
    del plain["latencies_s"]
    heard = judged.hits > 0
    return {
        **plain,
        "spoken": judged.spoken,
        "miss_rate": judged.miss_rate,
        "miss_interval": list(judged.miss_interval()),
        "false_alarms_per_hour": judged.false_alarms_per_hour,
        "false_alarm_interval": list(judged.false_alarm_interval()),
        "median_latency_s": judged.median_latency_s if heard else None,
        "p95_latency_s": judged.p95_latency_s if heard else None,
    }
