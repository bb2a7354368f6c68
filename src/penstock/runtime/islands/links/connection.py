"""What all links have in common: messages go in at one end, in order, and come out at the other, until it breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias


class Connection(Protocol):
    """One end of a link."""

    async def send(self, content: bytes) -> None:
        """Send a message.

        Raises:
            LinkError: when the link is broken; what was sent last may have got lost.
        """
        ...

    async def receive(self) -> bytes | None:
        """Return the next message; None once the other end has closed the link, or it is broken."""
        ...

    async def close(self) -> None:
        """End it; the other end receives what was sent before, and then None."""
        ...


Connector: TypeAlias = Callable[[], Awaitable[Connection]]
"""Makes a new connection to the same place; raises LinkError while nobody is there."""
