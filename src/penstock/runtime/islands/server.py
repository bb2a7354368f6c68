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
from penstock.runtime.engines import Elsewhere
from penstock.runtime.islands.delivery import Outbox, Wait, WhenFull
from penstock.runtime.islands.island import Island, Onward
from penstock.runtime.islands.journal import FileJournal
from penstock.runtime.islands.links.grpc import Identity, Listener, dialler
from penstock.runtime.islands.ops.prometheus import watch
from penstock.runtime.islands.ops.shadow_audit import Audit

LOG = logging.getLogger("penstock.station")

DRAIN_S = 10.0
"""How long an island that was told to end answers what it has."""


@dataclass(frozen=True)
class Station:
    """What an island needs to know to be one.

    Attributes:
        bundle: the folder.
        stage: its number, counted from 1.
        listen: the address, as host:port; port 0 for a free one.
        onward: the next island's address; None for the last.
        identity: for mutual TLS; without it only this machine can reach the island,
        in_the_clear: unless others are to reach it without any protection.
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
    onward: str | None = None
    identity: Identity | None = None
    in_the_clear: bool = False
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
        Audit(self.audit)  # refuses what is no share
        if self.onward is None and (self.journal is not None or self.deflate or self.audit):
            raise DeliveryError(
                "a journal, deflated payloads and an audit are for frames that are sent on, but there is no next "
                "island: give its address (--next), or leave them out."
            )


async def run_station(
    station: Station, ready: Callable[[int, int | None], None], *, engine: Elsewhere | None = None
) -> None:
    """Be an island until SIGTERM or SIGINT; then answer what is here, and end.

    Args:
        ready: told once it listens: the port, and that of the metrics.
        engine: what runs the stage elsewhere; None: it runs here.
    """
    check_reach(station)
    bundle = Bundle.read(station.bundle)
    journal = None if station.journal is None else FileJournal(station.journal)
    onward = None
    if station.onward is not None:
        outbox = Outbox(station.buffer, station.when_full, journal)
        onward = Onward(dialler(station.onward, identity=station.identity), outbox, station.deflate)
    island = Island(
        bundle,
        station.stage,
        onward=onward,
        engine=engine,
        window=station.window,
        threads=station.threads,
        audit=station.audit,
    )
    payload = island.stage.takes.payload_bytes
    listener = Listener(
        island.meet,
        station.listen,
        payload_bytes=payload,
        identity=station.identity,
        healthy=lambda: not island.leaving,
    )
    watched = None if station.metrics is None else watch(island, station.metrics)[0]
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


def check_reach(station: Station) -> None:
    """Refuse to be reachable from other machines without protection, unless that was said in plain words.

    Raises:
        LinkError: when the address is not one of this machine alone.
    """
    for address in (station.listen, station.metrics, station.onward):
        if address is not None:
            check_address(address)
    if station.identity is not None:
        station.identity.read()
    if station.in_the_clear:
        return
    if station.onward is not None and station.identity is None and not is_loopback(station.onward):
        raise LinkError(
            f"frames to {station.onward} would cross the network where others can read them. Give a certificate "
            "(penstock certs makes some for a try-out), or say --in-the-clear if the network is safe."
        )
    if station.metrics is not None and not is_loopback(station.metrics):
        raise LinkError(
            f"metrics at {station.metrics} could be read by other machines: serve them at 127.0.0.1, or say "
            "--in-the-clear if the network is safe."
        )
    if station.identity is not None or is_loopback(station.listen):
        return
    raise LinkError(
        f"an island at {station.listen} could be reached by other machines, which could read frames and send "
        "their own. Give it a certificate (penstock certs makes some for a try-out), let it listen at 127.0.0.1, "
        "or say --in-the-clear if the network is safe."
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
