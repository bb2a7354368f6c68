"""Run a bundle on a stream with the stages on islands: windows go out as they come, results stay in order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any, TypeAlias

import numpy as np

from penstock.errors import DeliveryError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.protocol import Answer
from penstock.runtime.pipeline import SampleResult
from penstock.runtime.streaming.detector import Detector, Event, StreamStats, WindowResult
from penstock.runtime.streaming.listener import Chunk, detector_of, stream_config_of
from penstock.runtime.streaming.windower import Window, Windower

_Pending: TypeAlias = tuple[Window, asyncio.Future[Any] | None]  # a window in flight; no future for gaps and silence


async def listen_remote(
    manifest: Manifest,
    client: Client,
    blocks: AsyncIterable[Chunk],
    *,
    max_in_flight: int = 64,
    timeout_s: float | None = None,
    on_end: Callable[[StreamStats, list[Event]], None] = lambda stats, events: None,
) -> AsyncIterator[WindowResult]:
    """Process a stream with the stages on islands.

    Args:
        client: a connected client of the first island.
        max_in_flight: number of windows that may wait for their answers.
        timeout_s: longest wait for an answer; None to wait forever.
        on_end: called at the end, also on cancellation, with the totals and the events that the end ends.

    Raises:
        BundleError: when the bundle has no stream_config.
        DeliveryError: when an answer does not arrive in time.
    """
    windower, detector = Windower(stream_config_of(manifest)), detector_of(manifest)
    in_flight: asyncio.Queue[_Pending | None] = asyncio.Queue(max_in_flight)

    async def submit() -> None:
        try:
            async for block in blocks:
                for piece in windower.push(block.samples, lost=block.lost):
                    answer = None
                    if piece.window is not None and not piece.silent:
                        answer = await client.submit(piece.window)
                    await in_flight.put((piece, answer))
        finally:
            await in_flight.put(None)

    submitting = asyncio.ensure_future(submit())
    try:
        while (pending := await in_flight.get()) is not None:
            for result in await _results(pending, detector, len(manifest.stages) - 1, timeout_s):
                yield result
        for result in detector.push_gap(math.inf):
            yield result
        await submitting  # raises the error that ended the blocks, after the results of all windows before it
    finally:
        submitting.cancel()
        on_end(detector.stats(windower.guard.input_quality), detector.end())


async def _results(pending: _Pending, detector: Detector, gates: int, timeout_s: float | None) -> list[WindowResult]:
    (time_s, window, _), future = pending
    if window is None:
        return list(detector.push_gap(time_s))
    if future is None:
        return [detector.push_silence(time_s)]
    try:
        answer = await asyncio.wait_for(future, timeout_s)
    except asyncio.TimeoutError:
        raise DeliveryError(
            f"no answer from the islands within {timeout_s:g} s. Is the first island running, with this bundle?"
        ) from None
    if not isinstance(answer, Answer):  # dropped: no scores, like a gap
        return list(detector.push_gap(time_s))
    return [detector.push(time_s, _sample_result(answer, gates))]


def _sample_result(answer: Answer, gates: int) -> SampleResult:
    scores = (*answer.scores, *(math.nan for _ in range(gates - len(answer.scores))))
    logits = None if answer.stopped else np.array(answer.logits, np.float32)
    return SampleResult(answer.exit_stage, answer.stopped, scores, logits)
