"""Run a bundle on a stream: windows through the pipeline, events out of the scores.

A `Listener` runs all stages in this process; a `remote.RemoteListener` sends windows to islands and detects the same
events. Both accept blocks of any length and keep no more than one window of the stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy.typing as npt

from penstock.errors import BundleError, PenstockError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.pipeline import Pipeline, SampleResult
from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.detector import Detector, Event, StreamStats, WindowResult
from penstock.runtime.streaming.windower import Window, Windower


class Chunk(Protocol):
    """A block of a stream, as `penstock.runtime.audio` yields them."""

    @property
    def samples(self) -> npt.NDArray[Any]:
        """The samples; see `InputGuard.push`."""

    @property
    def lost(self) -> int:
        """Number of samples missing before the block."""


class Listener:
    """Run a bundle on a stream, with all stages in this process.

        listener = Listener(Bundle.read("bundle"))
        for block in recording("evening.wav", listener.stream_config.frontend.rate_hz):
            for result in listener.push(block.samples, lost=block.lost):
                print(result.events)
        listener.end()

    Args:
        pipeline: runs the windows; by default a `Pipeline` of the bundle.
        threads: per stage; 0 for all cores.

    Raises:
        BundleError: when the bundle has no stream_config.
    """

    def __init__(self, bundle: Bundle, *, pipeline: Pipeline | None = None, threads: int = 1):
        self.manifest = bundle.manifest
        self.stream_config = stream_config_of(bundle.manifest)
        self._pipeline = Pipeline(bundle, threads=threads) if pipeline is None else pipeline
        self._windower = Windower(self.stream_config)
        self._detector = Detector(bundle.manifest, self.stream_config)

    @property
    def stats(self) -> StreamStats:
        """Totals of the stream so far."""
        return self._detector.stats(self._windower.guard.input_quality)

    def push(self, samples: npt.NDArray[Any], *, lost: int = 0) -> Iterator[WindowResult]:
        """Add a block of the stream; yield the result of each window that it completes.

        A window runs when its result is requested. Iterate to the end: windows that are not requested never run, and
        a block takes effect only once iteration has started.

        Args:
            samples: see `InputGuard.push`.
            lost: number of samples missing before the block.
        """
        for window in self._windower.push(samples, lost=lost):
            result = None if window.values is None else self._pipeline.predict_one(window.values)
            yield from window_results(self._detector, window, result)

    def end(self) -> list[Event]:
        """End the stream; return the events that it ends."""
        return self._detector.end()

    def listen(self, blocks: Iterable[Chunk]) -> Iterator[WindowResult]:
        """Process all blocks; events that the end of the stream ends come in a last `WindowResult`.

        An error that ends the blocks is raised after it.
        """
        try:
            for block in blocks:
                yield from self.push(block.samples, lost=block.lost)
        except PenstockError:
            yield from self._detector.push_gap(math.inf)
            raise
        yield from self._detector.push_gap(math.inf)


def stream_config_of(manifest: Manifest) -> StreamConfig:
    """Return how a bundle processes a stream; raise a BundleError if it takes single samples only."""
    if manifest.stream_config is None:
        raise BundleError(
            "the bundle has no stream_config: it takes single samples (penstock run). Export it with a stream_config, "
            "as penstock wakeword train does."
        )
    return manifest.stream_config


def window_results(detector: Detector, window: Window, result: SampleResult | None) -> Iterator[WindowResult]:
    """Add a window to a detector; yield its result. A gap, or a window without an answer, yields only what it ends."""
    if window.silent:
        yield detector.push_silence(window.time_s)
    elif result is None:
        yield from detector.push_gap(window.time_s)
    else:
        yield detector.push(window.time_s, *result)
