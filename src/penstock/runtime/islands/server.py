"""An island as a process: it listens at an address, works, and ends in order when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import DeliveryError, LinkError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.engines import RemoteEngine
from penstock.runtime.islands.delivery import Outbox, Wait, WhenFull
from penstock.runtime.islands.island import Downstream, Island
from penstock.runtime.islands.journal import FileJournal
from penstock.runtime.islands.links.grpc import Listener, TlsConfig, grpc_connector
from penstock.runtime.islands.ops.prometheus import serve_metrics
from penstock.runtime.islands.ops.shadow_audit import ShadowAudit

LOG = logging.getLogger("penstock.station")

DRAIN_S = 10.0
"""How long an island that was told to end answers what it has."""


@dataclass(frozen=True)
class ServerConfig:
    """What an island needs to know to be one.

    Attributes:
        bundle: the folder.
        stage: its number, counted from 1.
        listen: the address, as host:port; port 0 for a free one.
        onward: the next island's address; None for the last.
        identity: for mutual TLS; without it only this machine can reach the island,
        insecure: unless others are to reach it without any protection.
        buffer: how many frames wait for the next island at most.
        when_full: what happens then.
        journal: a file that keeps them over a restart; None: in memory.
        deflate: write payloads deflated where that is smaller.
        window: how many frames of a sender may be on their way.
        threads: that the stage may use; 0 for all there are.
        audit: the share of what this gate or a later one stops that is let through, to see what becomes of it.
        metrics: where Prometheus finds its metrics, as host:port; None for nowhere.
    """

    bundle: Path
    stage: int
    listen: str = "127.0.0.1:0"
    downstream: str | None = None
    tls: TlsConfig | None = None
    insecure: bool = False
    buffer: int = 1024
    when_full: WhenFull = Wait()
    journal: Path | None = None
    deflate: bool = False
    window: int = 64
    threads: int = 1
    audit: float = 0.0
    metrics: str | None = None

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise DeliveryError(f"{self.threads} threads are not possible: a number from 1 on, or 0 for all there are.")
        if self.window < 1 or self.buffer < 1:
            raise DeliveryError(
                f"a window of {self.window} and a buffer of {self.buffer} frames are not possible: both are 1 or more."
            )
        ShadowAudit(self.audit)  # refuses what is no share
        if self.downstream is None and (self.journal is not None or self.deflate or self.audit):
            raise DeliveryError(
                "a journal, deflated payloads and an audit are for frames that are sent on, but there is no next "
                "island: give its address (--next), or leave them out."
            )


async def run_server(
    server: ServerConfig, ready: Callable[[int, int | None], None], *, engine: RemoteEngine | None = None
) -> None:
    """Be an island until SIGTERM or SIGINT; then answer what is here, and end.

    Args:
        ready: told once it listens: the port, and that of the metrics.
        engine: what runs the stage elsewhere; None: it runs here.
    """
    check_reach(server)
    bundle = Bundle.read(server.bundle)
    journal = None if server.journal is None else FileJournal(server.journal)
    downstream = None
    if server.downstream is not None:
        outbox = Outbox(server.buffer, server.when_full, journal)
        downstream = Downstream(grpc_connector(server.downstream, tls=server.tls), outbox, server.deflate)
    island = Island(
        bundle,
        server.stage,
        downstream=downstream,
        engine=engine,
        window=server.window,
        threads=server.threads,
        audit=server.audit,
    )
    payload = island.stage.takes.payload_bytes
    listener = Listener(
        island.meet,
        server.listen,
        payload_bytes=payload,
        tls=server.tls,
        healthy=lambda: not island.leaving,
    )
    watched = None if server.metrics is None else serve_metrics(island, server.metrics)[0]
    told = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, told.set)
    working = asyncio.ensure_future(island.run())
    await listener.start()
    ready(listener.port, None if watched is None else watched.server_port)
    ending = asyncio.ensure_future(told.wait())
    try:
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and not await island.drain(DRAIN_S):
            LOG.warning("ended with frames that have no answer after %g s: who sent them sends them again", DRAIN_S)
    finally:
        ending.cancel()
        await listener.stop(1.0)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        if watched is not None:
            watched.shutdown()
            watched.server_close()
        if journal is not None:
            journal.close()


def check_reach(server: ServerConfig) -> None:
    """Refuse to be reachable from other machines without protection, unless that was said in plain words.

    Raises:
        LinkError: when the address is not one of this machine alone.
    """
    for address in (server.listen, server.metrics, server.downstream):
        if address is not None:
            check_address(address)
    if server.tls is not None:
        server.tls.read()
    if server.insecure:
        return
    if server.downstream is not None and server.tls is None and not is_loopback(server.downstream):
        raise LinkError(
            f"frames to {server.downstream} would cross the network where others can read them. Give a certificate "
            "(penstock certs makes some for a try-out), or say --insecure if the network is safe."
        )
    if server.metrics is not None and not is_loopback(server.metrics):
        raise LinkError(
            f"metrics at {server.metrics} could be read by other machines: serve them at 127.0.0.1, or say "
            "--insecure if the network is safe."
        )
    if server.tls is not None or is_loopback(server.listen):
        return
    raise LinkError(
        f"an island at {server.listen} could be reached by other machines, which could read frames and send "
        "their own. Give it a certificate (penstock certs makes some for a try-out), let it listen at 127.0.0.1, "
        "or say --insecure if the network is safe."
    )


def check_address(address: str) -> None:
    """Refuse what is no address.

    Raises:
        LinkError: when it is not host:port.
    """
    host, _, port = address.rpartition(":")
    if address.startswith("unix:"):
        return
    if (
        not host
        or not port.isascii()
        or not port.isdigit()
        or int(port) > 65535
        or (":" in host and not host.endswith("]"))
    ):
        raise LinkError(f"{address!r} is no address: give host:port, such as 127.0.0.1:7001, or [::1]:7001.")


def is_loopback(address: str) -> bool:
    """Say whether an address is reached from this machine alone.

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
