"""The interface of a link: an ordered, message-oriented connection that may break at any time.

Each medium is one module beside this one, with a client side and a server side in a `Link`; table.py lists them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.errors import LinkError
from penstock.runtime.islands.links.tls import TlsConfig


class Connection(Protocol):
    """One end of a link."""

    async def send(self, content: bytes) -> None:
        """Send a message; raise LinkError if the link is broken, which may lose messages sent just before."""

    async def receive(self) -> bytes | None:
        """Return the next message; None once the link is closed or broken."""

    async def close(self) -> None:
        """Close it; the other end receives what was sent before, then None."""


# Opens a new connection to one address; raises LinkError if nothing answers there.
Connector: TypeAlias = Callable[[], Awaitable[Connection]]
# Serves one accepted connection, which ends when it returns.
Handler: TypeAlias = Callable[[Connection], Awaitable[None]]


class MakeConnector(Protocol):
    """The client side of a link."""

    def __call__(self, address: str, *, tls: TlsConfig | None = None) -> Connector:
        """Return a connector for an address."""


class LinkServer(Protocol):
    """The server side of a link: accepts connections at an address."""

    address: str  # as a client gives it: with the port that was chosen for 0, and the scheme of any link but gRPC

    def __init__(
        self,
        handler: Handler,
        address: str,
        *,
        payload_bytes: int,
        tls: TlsConfig | None = None,
        is_healthy: Callable[[], bool] = lambda: True,
    ):
        """Bind to the address, or raise LinkError; ``payload_bytes`` is the largest payload to expect."""

    async def start(self) -> None:
        """Start accepting connections."""

    async def stop(self, grace_s: float = 0.0) -> None:
        """Stop accepting, and close open connections after at most ``grace_s``."""


def check_host_port(address: str) -> None:
    """Raise a LinkError unless an address is host:port, [IPv6]:port or unix:path."""
    if address.startswith("unix:"):
        return
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and int(port) <= 65535
    if not host or not is_port or (":" in host and not host.endswith("]")):
        raise LinkError(f"invalid address {address!r}: expected host:port, such as 127.0.0.1:7001 or [::1]:7001.")


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> [is_loopback(at) for at in ("127.0.0.1:7000", "[::1]:0", "localhost:1", "0.0.0.0:7000", "[::]:1", "hub:1")]
    [True, True, True, False, False, False]
    """
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Link:
    """Both sides of a medium, and its addresses."""

    connector: MakeConnector
    server: type[LinkServer]
    check_address: Callable[[str], None] = check_host_port  # raises LinkError for an invalid address
    is_local: Callable[[str], bool] = is_loopback  # whether only this machine can reach it, so that it needs no TLS
