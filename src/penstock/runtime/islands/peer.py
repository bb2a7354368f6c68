"""Who sends frames to an island: what is said back to it, in order and without making anybody else wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from penstock.errors import LinkError
from penstock.runtime.islands.links.connection import Connection
from penstock.runtime.islands.protocol import Down, encode


class Peer:
    """A sender that is connected: what is said to it waits here, and is written in order."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._messages: deque[Down] = deque()
        self._something, self._turn = asyncio.Event(), asyncio.Lock()
        self._writing = asyncio.ensure_future(self._write())
        self._broken = self._waking = False

    def enqueue(self, message: Down) -> None:
        """Say something, some time soon."""
        self._messages.append(message)
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """Wake who writes, unless all was said meanwhile: most answers are, by who read the question."""
        self._waking = False
        if self._messages:
            self._something.set()

    async def said(self) -> None:
        """Write all that waits: now and here, which is sooner than to wake somebody else for it."""
        async with self._turn:
            while self._messages:
                message = self._messages.popleft()
                if not self._broken:
                    try:
                        await self._connection.send(encode(message))
                    except LinkError:
                        self._broken = True  # what is not said is asked again

    async def close(self) -> None:
        """Write what is left, and end the connection."""
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self.said(), 1.0)
        self._writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._writing
        await self._connection.close()

    async def _write(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            await self.said()
