"""A link over gRPC: one bidirectional stream per connection.

gRPC carries the messages as bytes; protocol.py encodes and decodes them. So a size limit holds before anything is
allocated, and the island refuses and counts malformed messages itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from penstock.errors import LinkError
from penstock.runtime.islands.links.link import Connection, Connector, Handler, Link
from penstock.runtime.islands.links.tls import TlsConfig
from penstock.runtime.islands.protocol import METHOD

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # encoded grpc.health.v1.HealthCheckResponse messages
MAX_CONNECTIONS = 64  # at one island; further ones are rejected

# Bytes by which a message may exceed the payload. Within them the island refuses and counts a wrong message; beyond
# them gRPC rejects it before it is read.
MESSAGE_SLACK = 1 << 16

# Detects within seconds that a peer has vanished.
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.max_pings_without_data", 0),
)


def grpc_connector(address: str, *, tls: TlsConfig | None = None, timeout_s: float = 5.0) -> Connector:
    """Return a connector to an address.

    Args:
        address: host:port, or unix:path.
        tls: for mutual TLS; None for an unencrypted connection.
        timeout_s: limit for one attempt to connect.
    """

    async def connect() -> Connection:
        options = [*KEEPALIVE, ("grpc.max_receive_message_length", 1 << 20), ("grpc.use_local_subchannel_pool", 1)]
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
            raise LinkError(f"cannot connect to {address} {'without' if tls is None else 'with'} TLS.") from error
        except BaseException:
            await channel.close()
            raise
        return _ClientConnection(channel, channel.stream_stream(METHOD)())

    return connect


class _ClientConnection:
    """The client's end of a stream."""

    def __init__(self, channel: Any, call: Any):
        self._channel, self._call = channel, call
        self._closed = False

    async def send(self, content: bytes) -> None:
        try:
            await self._call.write(content)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise LinkError(f"the gRPC stream broke: {_details(error)}.") from error

    async def receive(self) -> bytes | None:
        try:
            content = await self._call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return None
        except asyncio.CancelledError:
            if self._closed:  # close() cancelled the call, nobody cancelled the reader
                return None
            raise
        return None if content is grpc.aio.EOF else content

    async def close(self) -> None:
        self._closed = True
        self._call.cancel()
        await self._channel.close()


class _ServerConnection:
    """The server's end of a stream."""

    def __init__(self, context: Any):
        self._context = context

    async def send(self, content: bytes) -> None:
        try:
            await self._context.write(content)
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError, grpc.aio.InternalError) as error:
            raise LinkError(f"the gRPC stream broke: {_details(error)}.") from error

    async def receive(self) -> bytes | None:
        try:
            content = await self._context.read()
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.InternalError):
            return None
        return None if content is grpc.aio.EOF else content

    async def close(self) -> None:
        """Do nothing: gRPC closes the stream when its handler returns."""


class GrpcServer:
    """Accepts gRPC streams at an address and passes each to a handler.

    Args:
        address: host:port with port 0 for a free one, or unix:path.
        payload_bytes: of the largest frame; gRPC rejects much longer messages before they are read.
        tls: for mutual TLS; None for unencrypted connections.
        is_healthy: what gRPC's health check reports.

    Raises:
        LinkError: if it cannot listen there.
    """

    def __init__(
        self,
        handler: Handler,
        address: str,
        *,
        payload_bytes: int,
        tls: TlsConfig | None = None,
        is_healthy: Callable[[], bool] = lambda: True,
    ):
        self._handler, self._is_healthy = handler, is_healthy
        limits = (("grpc.max_receive_message_length", payload_bytes + MESSAGE_SLACK), ("grpc.so_reuseport", 0))
        self._server = grpc.aio.server(options=[*KEEPALIVE, *limits], maximum_concurrent_rpcs=MAX_CONNECTIONS)
        self._server.add_generic_rpc_handlers(
            (
                _handlers(METHOD, grpc.stream_stream_rpc_method_handler(self._stream)),
                _handlers("/grpc.health.v1.Health/Check", grpc.unary_unary_rpc_method_handler(self._check_health)),
            )
        )
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                certificate, key, authority = tls.read()
                credentials = grpc.ssl_server_credentials(
                    [(key, certificate)], root_certificates=authority, require_client_auth=True
                )
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise LinkError(
                f"cannot listen at {address}: the port is in use, or the host is not an address of this machine."
            ) from error
        self.address = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace_s: float = 0.0) -> None:
        await self._server.stop(grace_s)

    async def _check_health(self, request: bytes, context: Any) -> bytes:
        return SERVING if self._is_healthy() else NOT_SERVING

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        await self._handler(_ServerConnection(context))


LINK = Link(grpc_connector, GrpcServer)


def _handlers(path: str, handler: Any) -> Any:
    service, method = path.removeprefix("/").split("/")
    return grpc.method_handlers_generic_handler(service, {method: handler})


def _details(error: BaseException) -> str:
    details = getattr(error, "details", None)
    return str(details() if callable(details) else error) or type(error).__name__
