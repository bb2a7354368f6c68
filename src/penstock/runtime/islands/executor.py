"""Run a stage on frames: in this process, or on a remote engine with many frames in flight.

Both executors apply back-pressure in `submit` and report each frame through `Callbacks`. A frame whose deadline has
passed is not run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from penstock.runtime.engines import Engine, Output, RemoteEngine
from penstock.runtime.islands.delivery import Key, is_late
from penstock.runtime.islands.protocol import DropReason, Frame, now_us

LOG = logging.getLogger("penstock.executor")

QUICK_S = 0.002  # a quicker stage runs in the task that received the frame: switching to a thread takes longer


class Job(NamedTuple):
    """A frame to run."""

    frame: Frame
    key: Key
    values: np.ndarray  # its payload, as the stage's input tensor
    received_s: float  # when it was received, by `time.perf_counter`


class Callbacks(NamedTuple):
    """Where an executor reports to."""

    on_output: Callable[[Job, np.ndarray, float | None], Awaitable[None]]  # a frame's output and gate logit, if any
    on_failure: Callable[[Key, DropReason], None]  # a frame that could not be run


class Executor(Protocol):
    """Runs a stage on frames."""

    async def submit(self, job: Job) -> None:
        """Take a frame; waits while there are too many."""

    async def run(self) -> None:
        """Work until cancelled."""


class LocalExecutor:
    """Runs the stage in this process: a quick stage at once, a slow one in a thread, in batches if several wait.

    Args:
        capacity: how many frames may wait.
        batch: how many are run at once.
    """

    def __init__(self, engine: Engine, callbacks: Callbacks, *, capacity: int, batch: int):
        self._engine, self._callbacks, self._batch = engine, callbacks, batch
        self._queue: asyncio.Queue[Job] = asyncio.Queue(capacity)
        self._slow = False

    async def submit(self, job: Job) -> None:
        if self._slow or not self._queue.empty():
            await self._queue.put(job)
        elif not _is_expired(job, self._callbacks):
            await self._run_stage([job])

    async def run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while not self._queue.empty() and len(batch) < self._batch:
                batch.append(self._queue.get_nowait())
            jobs = [job for job in batch if not _is_expired(job, self._callbacks)]
            if jobs:
                await self._run_stage(jobs)

    async def _run_stage(self, batch: Sequence[Job]) -> None:
        values = batch[0].values[None] if len(batch) == 1 else np.stack([job.values for job in batch])
        started = time.perf_counter()
        try:
            output = await asyncio.to_thread(self._engine.run, values) if self._slow else self._engine.run(values)
            samples = _split(output, len(batch))
        except Exception as error:  # of any kind: the frame is dropped, and the island goes on
            if len(batch) == 1:
                _fail(batch[0], error, self._callbacks)
            else:  # perhaps because of one of them
                for job in batch:
                    await self._run_stage([job])
            return
        self._slow = time.perf_counter() - started > QUICK_S
        for job, (values_out, gate_logit) in zip(batch, samples, strict=True):
            await self._callbacks.on_output(job, values_out, gate_logit)


class RemoteExecutor:
    """Runs the stage on a remote engine, with many frames in flight, in any order.

    Args:
        capacity: how many frames may be in flight.
    """

    def __init__(self, engine: RemoteEngine, callbacks: Callbacks, *, capacity: int = 1024):
        self._engine, self._callbacks = engine, callbacks
        self._slots = asyncio.Semaphore(capacity)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] | None = None

    async def submit(self, job: Job) -> None:
        await self._slots.acquire()
        task = asyncio.ensure_future(self._run_stage(job))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    async def run(self) -> None:
        self._failure = asyncio.get_running_loop().create_future()
        try:
            await self._failure
        finally:
            for task in tuple(self._tasks):
                task.cancel()

    async def _run_stage(self, job: Job) -> None:
        if _is_expired(job, self._callbacks):
            return
        try:
            ((values, gate_logit),) = _split(await self._engine.run_sample(job.values), 1)
        except Exception as error:  # as above
            _fail(job, error, self._callbacks)
            return
        await self._callbacks.on_output(job, values, gate_logit)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)  # raised by a callback, not by the engine: the island ends with it


def _split(output: Output, count: int) -> list[tuple[np.ndarray, float | None]]:
    """Return the output and the gate's logit of each sample of a batch."""
    if output.gate is None:
        return [(output.values[i], None) for i in range(count)]
    return [(output.values[i], float(output.gate[i])) for i in range(count)]


def _is_expired(job: Job, callbacks: Callbacks) -> bool:
    if not job.frame.deadline_ms or not is_late(job.frame, now_us()):
        return False
    callbacks.on_failure(job.key, DropReason.TOO_LATE)
    return True


def _fail(job: Job, error: Exception, callbacks: Callbacks) -> None:
    LOG.warning("the stage failed on a frame, which is dropped: %s", error)
    callbacks.on_failure(job.key, DropReason.FAILED)
