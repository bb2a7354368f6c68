"""The receiving side of an island: handshake, decode and check frames, skip duplicates, send replies.

connection ──▶ serve ──▶ _receive ──▶ submit (the executor)
           ◀── Peer  ◀── accept, answer (the island)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np

from penstock.errors import WireError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.islands.delivery import Inbox, Key, key_of
from penstock.runtime.islands.executor import Job
from penstock.runtime.islands.links.link import Connection
from penstock.runtime.islands.peer import Peer
from penstock.runtime.islands.protocol import (
    VERSION,
    Accepted,
    Answer,
    ClientMessage,
    Dropped,
    Fault,
    Frame,
    Goodbye,
    Hello,
    Refused,
    Welcome,
    decode_client,
    unpack_payload,
)
from penstock.runtime.islands.stats import IslandStats
from penstock.runtime.pipeline import is_finite

HELLO_TIMEOUT_S = 10.0  # how long to wait for a client's Hello


class Receiver:
    """Receives the frames of all clients of one stage.

    Args:
        submit: takes a new frame to be executed; may wait, which makes that client wait.
        window, memory: see `IslandConfig`.
    """

    def __init__(
        self,
        manifest: Manifest,
        stage: int,
        submit: Callable[[Job], Awaitable[None]],
        stats: IslandStats,
        *,
        window: int,
        memory: int,
    ):
        self._stage, self._input = stage, manifest.stages[stage - 1].input
        self._bundle = bytes.fromhex(manifest.id)
        self._bundle_prefix = int.from_bytes(self._bundle[:8], "big")
        self._submit, self._stats, self._window = submit, stats, window
        self._inbox = Inbox(memory)
        self._origins: dict[Key, Peer] = {}  # where a frame was last sent from: where its answer goes
        self._accepted: set[Key] = set()
        self._peers: set[Peer] = set()
        self._retries: set[asyncio.Task[None]] = set()
        self.draining = False  # whether new frames are turned away

    async def serve(self, connection: Connection) -> None:
        """Receive the frames of one client until its connection ends."""
        peer = Peer(connection)
        try:
            if await self._handshake(connection, peer):
                self._peers.add(peer)
                await peer.flush()
                while (content := await connection.receive()) is not None:
                    await self._receive(content, peer)
                    await peer.flush()  # a client that does not read its answers is not read from
        finally:
            self._peers.discard(peer)
            await peer.close()

    def accept(self, key: Key) -> None:
        """Tell the client that its frame passed and waits for the next island."""
        if key in self._origins:  # else it was answered in the meantime
            self._accepted.add(key)
            self._origins[key].enqueue(Accepted(*key))

    def answer(self, key: Key, reply: Answer | Dropped) -> None:
        """Send a frame's reply to the client that sent it last, and remember it."""
        if isinstance(reply, Dropped):
            self._stats.dropped[reply.reason] += 1
        else:
            self._stats.answered += 1
        self._inbox.answer(key, reply)
        self._accepted.discard(key)
        peer = self._origins.pop(key, None)
        if peer is not None:
            peer.enqueue(reply)

    async def drain(self) -> None:
        """Turn new frames away; return when all others are answered."""
        self.draining = True
        for peer in self._peers:
            peer.enqueue(Goodbye("the island is shutting down"))
        while len(self._inbox):
            await asyncio.sleep(0.01)
        for peer in tuple(self._peers):
            await peer.flush()

    async def _handshake(self, connection: Connection, peer: Peer) -> bool:
        """Read a Hello and reply; return whether frames may follow."""
        try:
            content = await asyncio.wait_for(connection.receive(), HELLO_TIMEOUT_S)
        except (TimeoutError, asyncio.TimeoutError):
            return self._refuse(peer, Fault.UNEXPECTED, f"no Hello within {HELLO_TIMEOUT_S:g} s.")
        if content is None:
            return False
        try:
            hello = decode_client(content)
        except WireError as error:
            return self._refuse(peer, Fault.GARBAGE, str(error))
        problem = self._check_hello(hello)
        if problem is not None:
            return self._refuse(peer, *problem)
        peer.enqueue(Goodbye("the island is shutting down") if self.draining else Welcome(self._window))
        return not self.draining

    def _check_hello(self, hello: ClientMessage) -> tuple[Fault, str] | None:
        if not isinstance(hello, Hello):
            return Fault.UNEXPECTED, "expected Hello as the first message, got a frame."
        if hello.version != VERSION:
            return Fault.WRONG_VERSION, f"expected protocol version {VERSION}, got {hello.version}."
        if hello.bundle != self._bundle:
            expected, got = self._bundle[:8].hex(), hello.bundle[:8].hex()
            return Fault.FOREIGN_BUNDLE, f"expected frames of bundle {expected}, got bundle {got}."
        if hello.stage != self._stage:
            return Fault.WRONG_STAGE, f"expected frames for stage {self._stage}, got stage {hello.stage}."
        return None

    def _refuse(self, peer: Peer, fault: Fault, text: str, frame: Frame | None = None) -> bool:
        self._stats.refused[fault] += 1
        peer.enqueue(Refused(fault, text, *((0, 0) if frame is None else key_of(frame))))
        return False

    async def _receive(self, content: bytes, peer: Peer) -> None:
        """Decode and check one message; submit it if it is a new frame."""
        try:
            frame = decode_client(content)
        except WireError as error:
            self._refuse(peer, Fault.GARBAGE, str(error))
            return
        if not isinstance(frame, Frame):
            self._refuse(peer, Fault.UNEXPECTED, "expected a frame, got a second Hello.")
            return
        if frame.bundle != self._bundle_prefix:
            self._refuse(peer, Fault.FOREIGN_BUNDLE, "the frame belongs to another bundle.", frame)
            return
        try:
            values = self._values(frame)
        except WireError as error:
            self._refuse(peer, Fault.BAD_PAYLOAD, str(error), frame)
            return
        self._stats.frames += 1
        self._stats.received_bytes += len(frame.payload)
        key = key_of(frame)
        answer = self._inbox.answer_to(key)
        if answer is not None:
            self._stats.duplicates += 1
            peer.enqueue(answer)
            return
        self._origins[key] = peer
        if not self._inbox.start(key):
            self._stats.duplicates += 1
            if key in self._accepted:
                peer.enqueue(Accepted(*key))
            return
        try:
            await self._submit(Job(frame, key, values, time.perf_counter()))
        except BaseException:  # the connection broke while the frame waited: when it is sent again it must be new
            self._inbox.forget(key)
            origin = self._origins.pop(key, None)
            if origin is not None and origin is not peer:  # it was sent again already, over another connection
                retry = asyncio.ensure_future(self._receive(content, origin))
                self._retries.add(retry)
                retry.add_done_callback(self._retries.discard)
            raise

    def _values(self, frame: Frame) -> np.ndarray:
        spec = self._input
        values = np.frombuffer(unpack_payload(frame, spec.payload_bytes), spec.numpy_dtype).reshape(spec.shape)
        if values.dtype.kind == "f" and not is_finite(values):
            raise WireError("the payload has NaN or infinity.")
        return values
