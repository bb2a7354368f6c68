"""Hear a bundle out: on composed streams, as a device would hear them, with what it took.

An audition runs the very `Listener` of a device over a stream, block by block, and keeps what it needs to be judged:
the score of every window, the events, how many windows reached each stage, and the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.bundle import Bundle
from penstock.chain import Chain
from penstock.data.composed import Composed, Recipe, compose
from penstock.data.material import Material
from penstock.judging import Judgement, Trial, judge
from penstock.listener import Counts, Listener, hearing_of
from penstock.listening.decision import Decision, Event, alarms, smooth
from penstock.manifest import Manifest

BLOCK = 1600
"""Samples at a time: 100 ms, as a microphone gives them."""

SITUATIONS: Mapping[str, Mapping[str, float]] = {
    "silence": {"silence": 1.0},
    "noise": {"noise": 1.0},
    "speech": {"speech": 1.0},
    "keyword": {"speech": 1.0},
}
"""What there is to hear while the cost is measured; in the last one every other word is the one."""


@dataclass(frozen=True, eq=False)
class Audition:
    """What a bundle heard of a stream.

    Attributes:
        times_s, scores: of each window: its end, and the log-odds of the word.
        events: as they began.
        counts: windows that reached each stage.
        seconds: that it took.
    """

    manifest: Manifest
    stream: Composed
    times_s: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    events: tuple[Event, ...]
    counts: Counts
    seconds: float

    @property
    def judgement(self) -> Judgement:
        """What its events are worth, at the threshold of the bundle."""
        return judge([event.heard_s for event in self.events], self.stream.truths, duration_s=self.stream.seconds)

    @property
    def stopped_early(self) -> float:
        """The share of windows that never reached the last stage."""
        return 1 - self.counts.reached[-1] / self.counts.windows

    def trial(self) -> Trial:
        """Return it as other thresholds are tried on it."""
        decision = hearing_of(self.manifest).decision
        smoothed = smooth(self.scores, decision.smoothing)
        depth = decision.threshold - decision.release

        def alarms_at(threshold: float) -> list[float]:
            tried = Decision(threshold, threshold - depth, decision.smoothing, decision.refractory_s)
            return alarms(self.times_s, smoothed, tried)

        return Trial(alarms_at, self.stream.truths, self.stream.seconds)


def hear(bundle: Bundle, stream: Composed, *, chain: Chain | None = None) -> Audition:
    """Let a bundle listen to a stream, block by block, on one thread."""
    listener = Listener(bundle, chain=chain)
    times: list[float] = []
    scores: list[float] = []
    events: list[Event] = []
    began = time.perf_counter()
    for start in range(0, len(stream.samples), BLOCK):
        for heard in listener.push(stream.samples[start : start + BLOCK]):
            times.append(heard.time_s)
            scores.append(heard.scores[0])
            events += [event for event in heard.events if not event.over]
    seconds = time.perf_counter() - began
    return Audition(bundle.manifest, stream, np.array(times), np.array(scores), tuple(events), listener.counts, seconds)


@dataclass(frozen=True)
class Upkeep:
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


def upkeep(bundles: Mapping[str, Bundle], streams: Sequence[Composed], *, repeats: int = 3) -> dict[str, Upkeep]:
    """Measure what listening costs: all bundles on the same streams, in turns, and of the times the best."""
    best: dict[str, Upkeep] = {}
    for _ in range(repeats):
        for name, bundle in bundles.items():
            heard = [hear(bundle, stream) for stream in streams]
            found = _upkeep(bundle.manifest, heard)
            if name not in best or found.ms < best[name].ms:
                best[name] = found
    return best


def situations(of: Material, word: str, *, seconds: float, seed: int) -> Iterator[tuple[str, Composed]]:
    """Compose a stream of each situation."""
    for number, (name, shares) in enumerate(SITUATIONS.items()):
        times = round(seconds / 5) if name == "keyword" else 0
        yield name, compose(Recipe(seconds, word, times, shares=shares), of, seed + number)


def _upkeep(manifest: Manifest, heard: Sequence[Audition]) -> Upkeep:
    seconds = sum(one.stream.seconds for one in heard)
    windows = sum(one.counts.windows for one in heard)
    return Upkeep(
        macs=sum(one.counts.macs(manifest) for one in heard) / seconds,
        ms=1000 * sum(one.seconds for one in heard) / seconds,
        crossed_bytes=sum(one.counts.crossed_bytes(manifest) for one in heard) / seconds,
        reached=tuple(sum(one.counts.reached[i] for one in heard) / windows for i in range(len(manifest.stages))),
    )
