"""A connected client, as seen by an island: an ordered queue of replies that never blocks others."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from penstock.errors import LinkError
from penstock.runtime.islands.links.link import Connection
from penstock.runtime.islands.protocol import ServerMessage, encode


class Peer:
    """Queues replies to one client and writes them in order."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._queue: deque[ServerMessage] = deque()
        self._has_messages, self._write_lock = asyncio.Event(), asyncio.Lock()
        self._writer = asyncio.ensure_future(self._write())
        self._broken = self._wake_scheduled = False

    def enqueue(self, message: ServerMessage) -> None:
        """Queue a reply."""
        self._queue.append(message)
        if not self._wake_scheduled:
            self._wake_scheduled = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """Wake the writer task, unless `flush` was quicker: the task that read a frame usually writes its answer."""
        self._wake_scheduled = False
        if self._queue:
            self._has_messages.set()

    async def flush(self) -> None:
        """Write all queued replies from the calling task, which saves a task switch."""
        async with self._write_lock:
            while self._queue:
                message = self._queue.popleft()
                if not self._broken:
                    try:
                        await self._connection.send(encode(message))
                    except LinkError:
                        self._broken = True  # the client reconnects and sends its frames again

    async def close(self) -> None:
        """Write what is queued, for at most a second, and close the connection."""
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self.flush(), 1.0)
        self._writer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._writer
        await self._connection.close()

    async def _write(self) -> None:
        while True:
            await self._has_messages.wait()
            self._has_messages.clear()
            await self.flush()
