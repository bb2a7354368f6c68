"""A link within one process."""

from __future__ import annotations

import asyncio
from weakref import WeakSet

from penstock.errors import LinkError
from penstock.runtime.islands.links.link import Connection, Handler


class MemoryLink:
    """An address within this process.

    Attributes:
        handler: serves the other end of each new connection; None if nothing listens.
    """

    def __init__(self, handler: Handler | None = None):
        self.handler = handler
        self._open: WeakSet[_End] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()

    async def connector(self) -> Connection:
        """Connect."""
        if self.handler is None:
            raise LinkError("nothing listens at the other end of the memory link.")
        ours, theirs = _pair()
        self._open.update((ours, theirs))
        task = asyncio.ensure_future(self.handler(theirs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return ours

    def cut(self) -> None:
        """Break all connections: messages in flight are lost."""
        for end in tuple(self._open):
            end.cut()
        self._open.clear()


class _End:
    """One end: it writes to one queue and reads from another."""

    def __init__(self, outgoing: asyncio.Queue[bytes | None], incoming: asyncio.Queue[bytes | None]):
        self._outgoing, self._incoming = outgoing, incoming
        self._broken = False

    async def send(self, content: bytes) -> None:
        if self._broken:
            raise LinkError("the memory link was cut.")
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
        self._incoming.put_nowait(None)  # wakes the reader


def _pair() -> tuple[_End, _End]:
    one: asyncio.Queue[bytes | None] = asyncio.Queue()
    other: asyncio.Queue[bytes | None] = asyncio.Queue()
    return _End(one, other), _End(other, one)
