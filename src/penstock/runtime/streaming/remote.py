"""Run a bundle on a stream with the stages on islands: windows go out as they come, results stay in order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, TypeAlias

import numpy as np

from penstock.errors import DeliveryError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.protocol import Answer
from penstock.runtime.pipeline import SampleResult
from penstock.runtime.streaming.detector import Detector, Event, StreamStats, WindowResult
from penstock.runtime.streaming.listener import Chunk, stream_config_of, window_results
from penstock.runtime.streaming.windower import Window, Windower

MAX_IN_FLIGHT = 64  # windows that may wait for their answers

_Pending: TypeAlias = tuple[Window, asyncio.Future[Any] | None]  # a window in flight; no future for gaps and silence


class RemoteListener:
    """Run a bundle on a stream, with the stages on islands; see `Listener`.

    Args:
        client: a connected client of the first island.
        timeout_s: longest wait for an answer; None to wait forever.

    Raises:
        BundleError: when the bundle has no stream_config.
    """

    def __init__(self, manifest: Manifest, client: Client, *, timeout_s: float | None = None):
        self._client, self._timeout_s, self._gates = client, timeout_s, len(manifest.stages) - 1
        config = stream_config_of(manifest)
        self._windower, self._detector = Windower(config), Detector(manifest, config)

    @property
    def stats(self) -> StreamStats:
        """Totals of the stream so far."""
        return self._detector.stats(self._windower.guard.input_quality)

    def end(self) -> list[Event]:
        """End the stream; return the events that it ends."""
        return self._detector.end()

    async def listen(self, blocks: AsyncIterable[Chunk]) -> AsyncIterator[WindowResult]:
        """Process all blocks; see `Listener.listen`.

        Raises:
            DeliveryError: when an answer does not arrive in time.
        """
        in_flight: asyncio.Queue[_Pending | None] = asyncio.Queue(MAX_IN_FLIGHT)
        submitting = asyncio.ensure_future(self._submit(blocks, in_flight))
        try:
            while (pending := await in_flight.get()) is not None:
                window, answer = pending
                sample_result = None if answer is None else await self._result(answer)
                for result in window_results(self._detector, window, sample_result):
                    yield result
            for result in self._detector.push_gap(math.inf):
                yield result
            await submitting  # raises the error that ended the blocks, after the results of all windows before it
        finally:
            submitting.cancel()

    async def _submit(self, blocks: AsyncIterable[Chunk], in_flight: asyncio.Queue[_Pending | None]) -> None:
        try:
            async for block in blocks:
                for window in self._windower.push(block.samples, lost=block.lost):
                    answer = None if window.values is None else await self._client.submit(window.values)
                    await in_flight.put((window, answer))
        finally:
            await in_flight.put(None)

    async def _result(self, future: asyncio.Future[Any]) -> SampleResult | None:
        """Wait for an answer; None for a window that was dropped."""
        try:
            answer = await asyncio.wait_for(future, self._timeout_s)
        except asyncio.TimeoutError:
            raise DeliveryError(
                f"no answer from the islands within {self._timeout_s:g} s. Is the first island running, with this "
                "bundle?"
            ) from None
        if not isinstance(answer, Answer):
            return None
        scores = (*answer.scores, *(math.nan for _ in range(self._gates - len(answer.scores))))
        logits = None if answer.stopped else np.array(answer.logits, np.float32)
        return SampleResult(answer.exit_stage, answer.stopped, scores, logits)
