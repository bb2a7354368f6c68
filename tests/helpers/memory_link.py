"""A link within one process: for tests, and for islands that share a processor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakSet

from penstock.errors import LinkError
from penstock.runtime.islands.links.connection import Connection


class MemoryLink:
    """A place to dial within this process. Whoever stands there is given the other end of each new connection.

    Attributes:
        there: who stands there; None for nobody.
    """

    def __init__(self, there: Callable[[Connection], Awaitable[None]] | None = None):
        self.there = there
        self._open: WeakSet[_End] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()

    async def connector(self) -> Connection:
        """Connect."""
        if self.there is None:
            raise LinkError("nobody stands at the other end of a link in memory.")
        ours, theirs = _pair()
        self._open.update((ours, theirs))
        task = asyncio.ensure_future(self.there(theirs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return ours

    def cut(self) -> None:
        """Break all connections: what is on the way is lost."""
        for end in tuple(self._open):
            end.cut()
        self._open.clear()


class _End:
    """One end: it puts into one queue and takes from another."""

    def __init__(self, outgoing: asyncio.Queue[bytes | None], incoming: asyncio.Queue[bytes | None]):
        self._outgoing, self._incoming = outgoing, incoming
        self._broken = False

    async def send(self, content: bytes) -> None:
        if self._broken:
            raise LinkError("a link in memory was cut.")
        self._outgoing.put_nowait(content)

    async def receive(self) -> bytes | None:
        if self._broken:
            return None
        content = await self._incoming.get()
        if content is None:
            self._broken = True
        return None if self._broken else content

    async def close(self) -> None:
        self._outgoing.put_nowait(None)
        self.cut()

    def cut(self) -> None:
        """Break this end."""
        self._broken = True
        self._incoming.put_nowait(None)  # who waits for a message wakes up


def _pair() -> tuple[_End, _End]:
    one: asyncio.Queue[bytes | None] = asyncio.Queue()
    other: asyncio.Queue[bytes | None] = asyncio.Queue()
    return _End(one, other), _End(other, one)
