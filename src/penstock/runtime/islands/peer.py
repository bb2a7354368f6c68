"""A connected client, as seen by an island: an ordered queue of replies that never blocks others."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from penstock.errors import LinkError
from penstock.runtime.islands.links.link import Connection
from penstock.runtime.islands.protocol import ServerMessage, encode


class Peer:
    """Queues replies to one client and writes them in order.

    The task that creates it reads the client's frames and flushes after each; another one writes what others queue.
    """

    def __init__(self, connection: Connection):
        self._connection, self._reader = connection, asyncio.current_task()
        self._queue: deque[ServerMessage] = deque()
        self._has_messages, self._idle = asyncio.Event(), asyncio.Event()
        self._writer = asyncio.ensure_future(self._write())
        self._writing = self._broken = False

    def enqueue(self, message: ServerMessage) -> None:
        """Queue a reply."""
        self._queue.append(message)
        if asyncio.current_task() is not self._reader:
            self._has_messages.set()

    async def flush(self) -> None:
        """Write all queued replies from the calling task, which saves a task switch."""
        while self._writing:  # another task: not an asyncio.Lock, which takes three more coroutines for each answer
            self._idle.clear()
            await self._idle.wait()
        self._writing = True
        try:
            while self._queue:
                content = encode(self._queue.popleft())
                if not self._broken:
                    await self._connection.send(content)
        except LinkError:
            self._broken = True  # the client reconnects and sends its frames again
            self._queue.clear()
        finally:
            self._writing = False
            self._idle.set()

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
