"""Where frames come from: a stream of samples to the first island, and one answer for each."""

from __future__ import annotations

import asyncio
import secrets
from types import TracebackType

import numpy as np

from penstock.errors import DeliveryError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.islands.delivery import Key, Outbox, key_of
from penstock.runtime.islands.links.connection import Connector
from penstock.runtime.islands.protocol import Answer, Dropped, Frame, Hello, Reason
from penstock.runtime.islands.uplink import Backoff, Uplink, makes_sense_for, now_us
from penstock.runtime.pipeline import check_input


class Client:
    """Asks a chain of islands about samples. Each gets one answer, whatever breaks on the way, or is reported dropped.

        async with Source(manifest, dial) as source:
            answer = await source.ask(sample)

    Args:
        dial: connects to the first island.
        outbox: keeps samples until they are answered.
        deadline_ms: so long after it was taken an answer to a sample is of use; 0 for ever.
    """

    def __init__(
        self,
        manifest: Manifest,
        connector: Connector,
        *,
        outbox: Outbox | None = None,
        deadline_ms: int = 0,
        backoff: Backoff = Backoff(),
    ):
        if not 0 <= deadline_ms < 1 << 32 or int(deadline_ms) != deadline_ms:
            raise DeliveryError(f"deadline_ms = {deadline_ms} is not possible: whole milliseconds, 0 for none.")
        self._takes = manifest.stages[0].takes
        whole = bytes.fromhex(manifest.id)
        self._short = int.from_bytes(whole[:8], "big")
        self.stream = secrets.randbits(64)
        self._next, self._deadline_ms = 0, deadline_ms
        self._waiting: dict[Key, asyncio.Future[Answer | Dropped]] = {}
        self._running: asyncio.Future[None] | None = None
        self.uplink = Uplink(
            connector,
            Hello(whole, 1),
            Outbox(256) if outbox is None else outbox,
            self._settled,
            backoff=backoff,
            makes_sense=makes_sense_for(manifest),
        )

    async def ask(self, sample: np.ndarray) -> Answer | Dropped:
        """Send a sample, and return what became of it."""
        return await (await self.submit(sample))

    async def submit(self, sample: np.ndarray, *, captured_us: int | None = None) -> asyncio.Future[Answer | Dropped]:
        """Send a sample, and return where its answer will be; waits while the buffer is full."""
        check_input(sample[None] if isinstance(sample, np.ndarray) else sample, self._takes)
        if captured_us is not None and not 0 <= captured_us < 1 << 64:
            raise DeliveryError(f"captured_us = {captured_us} is not possible: microseconds since 1970, 0 or more.")
        if self._running is None:
            raise DeliveryError("a source sends nothing before it was entered: async with Source(...) as source.")
        if self._running.done() and not self._running.cancelled():
            self._running.result()  # raises what ended it
        self._next += 1
        frame = Frame(
            self._short,
            self.stream,
            self._next,
            now_us() if captured_us is None else captured_us,
            np.ascontiguousarray(sample).tobytes(),
            deadline_ms=self._deadline_ms,
        )
        future: asyncio.Future[Answer | Dropped] = asyncio.get_running_loop().create_future()
        self._waiting[key_of(frame)] = future
        try:
            await self.uplink.send(frame)
        except BaseException:  # cancelled while the buffer was full: nobody waits for this answer any more
            del self._waiting[key_of(frame)]
            raise
        return future

    async def __aenter__(self) -> Client:
        self._running = asyncio.ensure_future(self.uplink.run())
        self._running.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._running is not None
        while not self._running.done():  # a link that breaks at this moment may swallow it
            self._running.cancel()
            await asyncio.wait({self._running}, timeout=1.0)
        self.uplink.give_up(Reason.ENDED)

    def _ended(self, running: asyncio.Future[None]) -> None:
        """Tell who waits why nothing is sent any more: not the link, which would be tried again."""
        error = None if running.cancelled() else running.exception()
        for future in self._waiting.values():
            if error is not None and not future.done():
                future.set_exception(error)

    def _settled(self, frame: Frame, message: Answer | Dropped) -> None:
        future = self._waiting.pop(key_of(frame), None)
        if future is not None and not future.done():
            future.set_result(message)
