"""A bundle that listens: each window of a stream through the gated chain, and events out of the scores.

`Listener` runs the chain in this process. `listen_over` sends the windows to islands, and decides from their answers;
the decisions are the same. Both take blocks of any length and keep no more than a window of the stream.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import BundleError, DeliveryError, PenstockError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.islands.protocol import Answer
from penstock.runtime.pipeline import Pipeline, SampleResult, is_finite
from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.detector import LIMIT, Event, Hysteresis, log_odds
from penstock.runtime.streaming.input_guard import InputQuality
from penstock.runtime.streaming.windower import Window, Windower

if TYPE_CHECKING:  # who listens alone needs no links
    from penstock.runtime.islands.client import Client

Floats = npt.NDArray[np.float32]


class Chunk(Protocol):
    """A block of a stream, as `penstock.runtime.audio` gives them."""

    @property
    def samples(self) -> npt.NDArray[Any]:
        """The samples; see `InputGuard.hear`."""

    @property
    def lost(self) -> int:
        """How many are missing before them."""


class WindowResult(NamedTuple):
    """What became of one window.

    Attributes:
        time_s: its end, from the beginning of the stream.
        stopped_at: the gate that stopped it, counted from 0; -1 if none did; -2 if there was nothing to hear in it.
        gates: each gate's probability that it is of interest; NaN where it did not get.
        scores: of each word, log-odds; -10 for what was stopped.
        smoothed: of each word.
        events: that began or ended with it.
    """

    time_s: float
    stopped_at: int
    gates: tuple[float, ...]
    scores: tuple[float, ...]
    smoothed: tuple[float, ...]
    events: tuple[Event, ...]


SILENT = -2
"""`WindowResult.stopped_at` of a window without any sound in it: no stage ran."""


@dataclass
class Counts:
    """What listening took so far.

    Attributes:
        reached: windows that reached each stage.
        silent: windows that no stage had to see.
        noticed: what was wrong with the sound.
    """

    reached: list[int]
    silent: int = 0
    input_quality: InputQuality = field(default_factory=InputQuality)

    @property
    def windows(self) -> int:
        """Windows so far."""
        return self.reached[0] + self.silent

    def macs(self, manifest: Manifest) -> int:
        """Return the multiply-accumulates that the stages did."""
        return sum(stage.macs * some for stage, some in zip(manifest.stages, self.reached, strict=True))

    def crossed_bytes(self, manifest: Manifest) -> int:
        """Return the bytes of payload that crossed from one stage to the next."""
        return sum(
            stage.output.payload_bytes * some
            for stage, some in zip(manifest.stages[:-1], self.reached[1:], strict=True)
        )


class Listener:
    """Listens to a stream with all stages in this process.

        listener = Listener(Bundle.read("bundle"))
        for block in recording("evening.wav", listener.hearing.sense.rate_hz):
            for heard in listener.push(block.samples, lost=block.lost):
                print(heard.events)
        listener.end()

    Args:
        chain: runs the windows, where another one than onnxruntime's is to do it.
        threads: that a stage may use.

    Raises:
        BundleError: when the bundle does not say how it listens.
    """

    def __init__(self, bundle: Bundle, *, chain: Pipeline | None = None, threads: int = 1):
        self.manifest = bundle.manifest
        self.stream_config = stream_config_of(bundle.manifest)
        self._chain = Pipeline(bundle, threads=threads) if chain is None else chain
        self._slicer = Windower(self.stream_config)
        self._mind = Detector(bundle.manifest)

    @property
    def counts(self) -> Counts:
        """What listening took so far."""
        return self._mind.counts(self._slicer.ear.input_quality)

    def push(self, samples: npt.NDArray[Any], *, lost: int = 0) -> Iterator[WindowResult]:
        """Take a block of the stream; give what became of each window that it completes.

        A window is judged when it is asked for: who leaves early leaves the block's others unjudged, and who never asks
        has pushed nothing.
        """
        for piece in self._slicer.push(samples, lost=lost):
            if piece.window is None:
                yield from self._mind.gap(piece.time_s)
            elif piece.silent:
                yield self._mind.silence(piece.time_s)
            else:
                yield self._mind.consider(piece.time_s, self._chain.ask(piece.window))

    def end(self) -> list[Event]:
        """End the stream: return the events that were under way."""
        return self._mind.end()

    def listen(self, blocks: Iterable[Chunk]) -> Iterator[WindowResult]:
        """Listen to all blocks; events that are under way at the end come with a last `WindowResult` of their own.

        What ends the blocks with an error is raised behind it.
        """
        try:
            for block in blocks:
                yield from self.push(block.samples, lost=block.lost)
        except PenstockError:
            yield from self._mind.gap(math.inf)
            raise
        yield from self._mind.gap(math.inf)


async def listen_over(
    manifest: Manifest,
    source: Client,
    blocks: AsyncIterable[Chunk],
    *,
    ahead: int = 64,
    patience_s: float | None = None,
    ended: Callable[[Counts, list[Event]], None] = lambda counts, events: None,
) -> AsyncIterator[WindowResult]:
    """Listen with the stages on islands: windows go out as they come, and are decided in their order.

    Args:
        source: an entered source of the first island.
        ahead: windows that may be on their way at once.
        patience_s: give up when a window has waited so long for its answer; None: never.
        ended: is told at the end what listening took, also when it is cancelled, and the events under way then.

    Raises:
        BundleError: when the bundle does not say how it listens.
        DeliveryError: when patience has an end.
    """
    slicer, mind = Windower(stream_config_of(manifest)), Detector(manifest)
    under_way: asyncio.Queue[_Asked | None] = asyncio.Queue(ahead)

    async def ask() -> None:
        try:
            async for block in blocks:
                for piece in slicer.push(block.samples, lost=block.lost):
                    answer = None
                    if piece.window is not None and not piece.silent:
                        answer = await source.submit(piece.window)
                    await under_way.put(_Asked(piece, answer))
        finally:
            await under_way.put(None)

    asking = asyncio.ensure_future(ask())
    try:
        while (asked := await under_way.get()) is not None:
            for heard in await _became(asked, mind, len(manifest.stages) - 1, patience_s):
                yield heard
        for heard in mind.gap(math.inf):
            yield heard
        await asking  # raises what ended the blocks, when all that came before it was heard
    finally:
        asking.cancel()
        ended(mind.counts(slicer.ear.input_quality), mind.end())


class _Asked(NamedTuple):
    """A window on its way, or a gap, or silence, of which nobody is asked."""

    piece: Window
    answer: asyncio.Future[Any] | None


async def _became(asked: _Asked, mind: Detector, gates: int, patience_s: float | None) -> list[WindowResult]:
    time_s = asked.piece.time_s
    if asked.piece.window is None:
        return list(mind.gap(time_s))
    if asked.answer is None:
        return [mind.silence(time_s)]
    try:
        answer = await asyncio.wait_for(asked.answer, patience_s)
    except asyncio.TimeoutError:
        raise DeliveryError(
            f"the islands have not answered for {patience_s:g} s: is the first one there, and does it run this bundle?"
        ) from None
    if not isinstance(answer, Answer):  # dropped: nobody judged it, so it supports nothing
        return list(mind.gap(time_s))
    return [mind.consider(time_s, _of_islands(answer, gates))]


class Detector:
    """Makes events of what the stages say, and counts."""

    def __init__(self, manifest: Manifest):
        stream_config = stream_config_of(manifest)
        self._words = stream_config.words
        self._nothing = (-LIMIT,) * len(stream_config.words)  # the scores of what was stopped
        self._unasked = (math.nan,) * (len(manifest.stages) - 1)  # the gates' of what none of them saw
        self._deciders = [
            Hysteresis(stream_config.detector, manifest.labels[w], stream_config.window_s) for w in stream_config.words
        ]
        self._stopped = [0] * len(self._unasked)
        self._seen, self._silent, self._last_s = 0, 0, 0.0

    def consider(self, time_s: float, became: SampleResult) -> WindowResult:
        """Take what became of a window."""
        self._seen += 1
        if became.stopped_at >= 0:
            self._stopped[became.stopped_at] += 1
        scores = self._nothing
        if became.logits is not None and is_finite(became.logits):
            scores = tuple(float(log_odds(became.logits, word)) for word in self._words)
        return self._decided(time_s, became.stopped_at, became.scores, scores)

    def silence(self, time_s: float) -> WindowResult:
        """Take a window that has nothing in it."""
        self._silent += 1
        return self._decided(time_s, SILENT, self._unasked, self._nothing)

    def gap(self, time_s: float) -> Iterator[WindowResult]:
        """Forget: sound is missing here. Gives the events that it ended, if any."""
        events = tuple(event for decider in self._deciders for event in decider.reset())
        if events:
            at = self._last_s if math.isinf(time_s) else time_s
            yield WindowResult(at, SILENT, self._unasked, self._nothing, self._nothing, events)

    def end(self) -> list[Event]:
        """Return the events that were under way."""
        return [event for decider in self._deciders for event in decider.end()]

    def counts(self, input_quality: InputQuality) -> Counts:
        """Return the windows so far."""
        reached = [self._seen]
        for stopped in self._stopped:
            reached.append(reached[-1] - stopped)
        return Counts(reached, self._silent, input_quality)

    def _decided(
        self, time_s: float, stopped_at: int, gates: tuple[float, ...], scores: tuple[float, ...]
    ) -> WindowResult:
        events: list[Event] = []
        for decider, score in zip(self._deciders, scores, strict=True):
            events += decider.push(time_s, score)
        self._last_s = time_s
        smoothed = tuple(decider.smoothed for decider in self._deciders)
        return WindowResult(time_s, stopped_at, gates, scores, smoothed, tuple(events))


def stream_config_of(manifest: Manifest) -> StreamConfig:
    """Return how a bundle listens.

    Raises:
        BundleError: when it does not say so.
    """
    if manifest.stream_config is None:
        raise BundleError(
            "this bundle does not say how it listens: it was exported for samples that are given one by one (penstock "
            "run). Export it with a hearing, as penstock wakeword train does."
        )
    return manifest.stream_config


def _of_islands(answer: Answer, gates: int) -> SampleResult:
    scores = (*answer.scores, *(math.nan for _ in range(gates - len(answer.scores))))
    logits = None if answer.stopped else np.array(answer.logits, np.float32)
    return SampleResult(answer.exit_stage - 1 if answer.stopped else -1, scores, logits)
