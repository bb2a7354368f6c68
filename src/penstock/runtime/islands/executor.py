"""Where an island's stage is run: here, or elsewhere and many at a time.

Either takes frames in turn and makes who brings them wait when there are too many; what becomes of each it tells the
island. A frame whose deadline has passed is not worked on.
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
from penstock.runtime.islands.protocol import Frame, Reason
from penstock.runtime.islands.uplink import now_us

LOG = logging.getLogger("penstock.workbench")

QUICK_S = 0.002
"""A stage that takes less runs where messages are read: to wake another task or a thread would take longer."""


class Job(NamedTuple):
    """A frame at an island.

    Attributes:
        key: what tells it from all others.
        values: its payload, as the stage takes it.
        at_s: when it came, by `time.perf_counter`.
    """

    frame: Frame
    key: Key
    values: np.ndarray
    at_s: float


class Callbacks(NamedTuple):
    """Whom a workbench tells.

    Attributes:
        worked: what the stage gave for a frame: values, and the gate's logit if there is one.
        failed: a frame that gets no answer, and why.
    """

    worked: Callable[[Job, np.ndarray, float | None], Awaitable[None]]
    failed: Callable[[Key, Reason], None]


class Executor(Protocol):
    """Runs a stage on frames."""

    async def take(self, arrived: Job) -> None:
        """Take a frame; waits while there are too many."""
        ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...


class LocalExecutor:
    """In this process: at once when the stage is quick, else in a thread, and then in batches if several wait.

    Args:
        most: frames that wait.
        batch: how many are run at once.
    """

    def __init__(self, engine: Engine, finished: Callbacks, *, most: int, batch: int):
        self._engine, self._finished, self._batch = engine, finished, batch
        self._waiting: asyncio.Queue[Job] = asyncio.Queue(most)
        self._slow = False

    async def take(self, arrived: Job) -> None:
        """Take a frame; waits while there are too many."""
        if self._slow or not self._waiting.empty():
            await self._waiting.put(arrived)
        elif not _too_late(arrived, self._finished):
            await self._run_stage([arrived])

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            batch = [await self._waiting.get()]
            while not self._waiting.empty() and len(batch) < self._batch:
                batch.append(self._waiting.get_nowait())
            left = [arrived for arrived in batch if not _too_late(arrived, self._finished)]
            if left:
                await self._run_stage(left)

    async def _run_stage(self, batch: Sequence[Job]) -> None:
        values = batch[0].values[None] if len(batch) == 1 else np.stack([arrived.values for arrived in batch])
        began = time.perf_counter()
        try:
            out = await asyncio.to_thread(self._engine.run, values) if self._slow else self._engine.run(values)
            each = _each(out, len(batch))
        except Exception as error:  # of an engine, of any kind: such a frame gets no answer, and the island goes on
            if len(batch) == 1:
                _failed(batch[0], error, self._finished)
            else:  # one may have spoilt it for the others
                for arrived in batch:
                    await self._run_stage([arrived])
            return
        self._slow = time.perf_counter() - began > QUICK_S
        for arrived, (given, logit) in zip(batch, each, strict=True):
            await self._finished.worked(arrived, given, logit)


class RemoteExecutor:
    """Elsewhere: many frames are on their way at a time, and each is told of as it comes back.

    Args:
        most: frames on their way.
    """

    def __init__(self, engine: RemoteEngine, finished: Callbacks, *, most: int = 1024):
        self._engine, self._finished = engine, finished
        self._room = asyncio.Semaphore(most)
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[None] | None = None

    async def take(self, arrived: Job) -> None:
        """Take a frame; waits while there are too many."""
        await self._room.acquire()
        task = asyncio.ensure_future(self._work(arrived))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def run(self) -> None:
        """Work until cancelled."""
        self._broken = asyncio.get_running_loop().create_future()
        try:
            await self._broken
        finally:
            for task in tuple(self._tasks):
                task.cancel()

    async def _work(self, arrived: Job) -> None:
        if _too_late(arrived, self._finished):
            return
        try:
            ((given, logit),) = _each(await self._engine.ask(arrived.values), 1)
        except Exception as error:  # as above
            _failed(arrived, error, self._finished)
            return
        await self._finished.worked(arrived, given, logit)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        error = None if task.cancelled() else task.exception()
        if error is not None and self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)  # not of an engine: the island ends with it


def _each(out: Output, count: int) -> list[tuple[np.ndarray, float | None]]:
    """Return what a stage gave for each sample of a batch."""
    if out.gate is None:
        return [(out.values[i], None) for i in range(count)]
    return [(out.values[i], float(out.gate[i])) for i in range(count)]


def _too_late(arrived: Job, finished: Callbacks) -> bool:
    if not arrived.frame.deadline_ms or not is_late(arrived.frame, now_us()):
        return False
    finished.failed(arrived.key, Reason.TOO_LATE)
    return True


def _failed(arrived: Job, error: Exception, finished: Callbacks) -> None:
    LOG.warning("a stage failed on a frame, which is reported as dropped: %s", error)
    finished.failed(arrived.key, Reason.FAILED)
