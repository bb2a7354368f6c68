"""Run an island as a process: listen, work, and drain on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import DeliveryError, LinkError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.engines import RemoteEngine
from penstock.runtime.islands.delivery import Outbox, Wait, WhenFull
from penstock.runtime.islands.island import Downstream, Island, IslandConfig
from penstock.runtime.islands.journal import FileJournal
from penstock.runtime.islands.links.link import check_host_port, is_loopback
from penstock.runtime.islands.links.table import connector_for, link_for
from penstock.runtime.islands.links.tls import TlsConfig
from penstock.runtime.islands.ops.prometheus import serve_metrics
from penstock.runtime.islands.ops.shadow_audit import ShadowAudit

LOG = logging.getLogger("penstock.server")

DRAIN_S = 10.0  # how long an island may take to answer what it has before it ends


@dataclass(frozen=True)
class ServerConfig:
    """Settings of an island as a process."""

    bundle: Path  # the bundle's folder
    stage: int  # its number, counted from 1
    listen: str = "127.0.0.1:0"  # address to listen at, such as host:port; port 0 for a free one
    downstream: str | None = None  # address of the next island; None for the last stage
    tls: TlsConfig | None = None  # for mutual TLS; without it only this machine can reach the island,
    insecure: bool = False  # unless this allows unencrypted connections from other machines
    buffer: int = 1024  # how many frames may wait for the next island
    when_full: WhenFull = Wait()  # what to do when the buffer is full
    journal: Path | None = None  # a file that keeps waiting frames over a restart; None to keep them in memory
    deflate: bool = False  # deflate payloads if that makes them smaller
    window: int = 64  # how many frames of a client may be in flight
    threads: int = 1  # of the stage; 0 for all cores
    shadow_rate: float = 0.0  # the share of stopped frames that is forwarded as shadow samples
    metrics: str | None = None  # host:port for Prometheus metrics; None for none

    def __post_init__(self) -> None:
        for name, least in (("threads", 0), ("window", 1), ("buffer", 1)):
            if getattr(self, name) < least:
                raise DeliveryError(f"{name} must be at least {least}, got {getattr(self, name)}.")
        ShadowAudit(self.shadow_rate)  # checks the rate
        if self.downstream is None and (self.journal is not None or self.deflate or self.shadow_rate):
            raise DeliveryError(
                "journal, deflate and shadow rate apply to forwarded frames, but there is no next island: give its "
                "address (--next), or leave them out."
            )


async def run_server(
    config: ServerConfig, on_ready: Callable[[str, int | None], None], *, engine: RemoteEngine | None = None
) -> None:
    """Run an island until SIGTERM or SIGINT; then answer what it has, and end.

    Args:
        on_ready: called once it listens, with its address and the port of the metrics.
        engine: runs the stage; None for onnxruntime in this process.
    """
    check_exposure(config)
    bundle = Bundle.read(config.bundle)
    journal = None if config.journal is None else FileJournal(config.journal)
    island = Island(
        bundle,
        config.stage,
        downstream=_downstream(config, journal),
        engine=engine,
        config=IslandConfig(window=config.window, threads=config.threads, shadow_rate=config.shadow_rate),
    )
    link, address = link_for(config.listen)
    server = link.server(
        island.serve,
        address,
        payload_bytes=island.stage.input.payload_bytes,
        tls=config.tls,
        is_healthy=lambda: not island.draining,
    )
    metrics = None if config.metrics is None else serve_metrics(island, config.metrics)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    running = asyncio.ensure_future(island.run())
    await server.start()
    on_ready(server.address, None if metrics is None else metrics.server_port)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and not await island.drain(DRAIN_S):
            LOG.warning("frames are unanswered after %g s; their senders will send them again", DRAIN_S)
    finally:
        stopping.cancel()
        await server.stop(1.0)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        if metrics is not None:
            metrics.shutdown()
            metrics.server_close()
        if journal is not None:
            journal.close()


def _downstream(config: ServerConfig, journal: FileJournal | None) -> Downstream | None:
    if config.downstream is None:
        return None
    outbox = Outbox(config.buffer, config.when_full, journal)
    return Downstream(connector_for(config.downstream, tls=config.tls), outbox, config.deflate)


def check_exposure(config: ServerConfig) -> None:
    """Raise a LinkError if an address or certificate is invalid, or, unless ``insecure``, is exposed unencrypted."""
    listens_locally = _is_local(config.listen)
    sends_locally = config.downstream is None or _is_local(config.downstream)
    if config.metrics is not None:
        check_host_port(config.metrics)
    if config.tls is not None:
        config.tls.read()
    if config.insecure:
        return
    if config.tls is None and not sends_locally:
        raise LinkError(
            f"frames to {config.downstream} would cross the network unencrypted. Give a certificate (penstock certs "
            "creates one for development), or use --insecure on a trusted network."
        )
    if config.metrics is not None and not is_loopback(config.metrics):
        raise LinkError(
            f"metrics at {config.metrics} can be read by other machines. Serve them at 127.0.0.1, or use --insecure "
            "on a trusted network."
        )
    if config.tls is None and not listens_locally:
        raise LinkError(
            f"other machines can reach {config.listen}, read frames and send their own. Give a certificate (penstock "
            "certs creates one for development), listen at 127.0.0.1, or use --insecure on a trusted network."
        )


def _is_local(address: str) -> bool:
    link, rest = link_for(address)
    return link.is_local(rest)
