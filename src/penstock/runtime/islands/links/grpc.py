"""A link over gRPC: one bidirectional stream of messages a connection.

The service is ``penstock.Island/Stream`` (docs/penstock.proto). Messages are read and written by `wire`, so that a size
limit holds before anything is allocated, and garbage is refused and counted by the island rather than by gRPC.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from penstock.errors import LinkError
from penstock.runtime.islands.links.connection import Connection
from penstock.runtime.islands.protocol import METHOD, PACKAGE, SERVICE

PATH = f"/{PACKAGE}.{SERVICE}/{METHOD}"

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""grpc.health.v1.HealthCheckResponse: its only field, the status."""

MOST_CONNECTIONS = 64
"""At one island; more are turned away."""

SLACK = 1 << 16
"""Bytes by which a message may be longer than a payload: one that is wrong is then refused and counted by the island,
and one that is longer still is refused by gRPC before it is read."""

ALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.max_pings_without_data", 0),
)
"""A peer that is gone without a word is noticed within seconds."""


@dataclass(frozen=True)
class TlsConfig:
    """Who one is, and whom one trusts: files in PEM, as `penstock certs` writes them.

    Attributes:
        certificate, key: of this island.
        authority: that signed the other's certificate.
    """

    certificate: Path | str
    key: Path | str
    authority: Path | str

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Return the three files.

        Raises:
            LinkError: when one cannot be read, or is not what it should be.
        """
        try:
            files = tuple(Path(one).read_bytes() for one in (self.certificate, self.key, self.authority))
        except OSError as error:
            raise LinkError(
                f"{error.filename} could not be read: {error.strerror}. Make one with penstock certs."
            ) from error
        tried = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            tried.load_cert_chain(
                self.certificate, self.key, password=""
            )  # one with a password is refused, not asked for
        except (ssl.SSLError, ValueError) as error:
            raise LinkError(
                f"{self.certificate} and {self.key} are no certificate and its key in PEM, without a password: "
                f"{error}. penstock certs makes both."
            ) from error
        try:
            tried.load_verify_locations(self.authority)
        except (ssl.SSLError, ValueError) as error:
            raise LinkError(
                f"{self.authority} is no certificate of an authority in PEM: {error}. penstock certs makes one."
            ) from error
        return files[0], files[1], files[2]


def grpc_connector(
    address: str, *, tls: TlsConfig | None = None, timeout_s: float = 5.0
) -> Callable[[], Awaitable[Connection]]:
    """Return what connects to an address.

    Args:
        identity: for mutual TLS; None: in the clear.
        timeout_s: how long one attempt may take.
    """

    async def connector() -> Connection:
        options = [*ALIVE, ("grpc.max_receive_message_length", 1 << 20), ("grpc.use_local_subchannel_pool", 1)]
        if tls is None:
            channel = grpc.aio.insecure_channel(address, options=options)
        else:
            certificate, key, authority = tls.read()
            credentials = grpc.ssl_channel_credentials(authority, key, certificate)
            channel = grpc.aio.secure_channel(address, credentials, options=options)
        try:
            await asyncio.wait_for(channel.channel_ready(), timeout_s)
        except (TimeoutError, asyncio.TimeoutError) as error:
            await channel.close()
            spoken = "in the clear" if tls is None else "with TLS"
            raise LinkError(f"nobody answers at {address}, {spoken}") from error
        except BaseException:
            await channel.close()
            raise
        call = channel.stream_stream(PATH)()
        return _Dialled(channel, call)

    return connector


class _Dialled:
    """The end that dialled."""

    def __init__(self, channel: Any, call: Any):
        self._channel, self._call = channel, call
        self._closed = False

    async def send(self, content: bytes) -> None:
        try:
            await self._call.write(content)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise LinkError(f"a link broke: {_said(error)}.") from error

    async def receive(self) -> bytes | None:
        try:
            content = await self._call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return None
        except asyncio.CancelledError:
            if self._closed:  # it is the call that was cancelled, and not who reads
                return None
            raise
        return None if content is grpc.aio.EOF else content

    async def close(self) -> None:
        self._closed = True
        self._call.cancel()
        await self._channel.close()


class _Accepted:
    """The end that was dialled."""

    def __init__(self, requests: AsyncIterator[bytes], context: Any):
        self._requests, self._context = requests, context
        self._ended = asyncio.Event()

    async def send(self, content: bytes) -> None:
        try:
            await self._context.write(content)
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError, grpc.aio.InternalError) as error:
            raise LinkError(f"a link broke: {_said(error)}.") from error

    async def receive(self) -> bytes | None:
        try:
            content = await self._context.read()
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.InternalError):
            return None
        return None if content is grpc.aio.EOF else content

    async def close(self) -> None:
        self._ended.set()


class Listener:
    """Takes connections at an address, and gives each to an island.

    Args:
        meet: what is done with a connection; it ends when that returns.
        payload_bytes: of the largest frame; a longer message is refused by gRPC before it is read.
        healthy: what gRPC's health check says of it.
    """

    def __init__(
        self,
        meet: Callable[[Connection], Awaitable[None]],
        address: str,
        *,
        payload_bytes: int,
        tls: TlsConfig | None = None,
        healthy: Callable[[], bool] = lambda: True,
    ):
        self._meet, self._healthy = meet, healthy
        options = [*ALIVE, ("grpc.max_receive_message_length", payload_bytes + SLACK), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CONNECTIONS)
        handler = grpc.stream_stream_rpc_method_handler(self._stream)
        generic = grpc.method_handlers_generic_handler(f"{PACKAGE}.{SERVICE}", {METHOD: handler})
        health = {"Check": grpc.unary_unary_rpc_method_handler(self._check)}
        generic_health = grpc.method_handlers_generic_handler("grpc.health.v1.Health", health)
        self._server.add_generic_rpc_handlers((generic, generic_health))
        try:
            if tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                certificate, key, authority = tls.read()
                credentials = grpc.ssl_server_credentials(
                    [(key, certificate)], root_certificates=authority, require_client_auth=True
                )
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise LinkError(
                f"{address} cannot be listened at: is something else there, and is it an address of this machine?"
            ) from error

    async def start(self) -> None:
        """Begin to take connections."""
        await self._server.start()

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take no more, and end those there are within a time."""
        await self._server.stop(grace_s)

    async def _check(self, request: bytes, context: Any) -> bytes:
        return SERVING if self._healthy() else NOT_SERVING

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        await self._meet(_Accepted(requests, context))


def _said(error: BaseException) -> str:
    details = getattr(error, "details", None)
    return str(details() if callable(details) else error) or type(error).__name__
