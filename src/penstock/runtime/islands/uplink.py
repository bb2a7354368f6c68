"""Send frames over a link that may break, until each is answered."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.errors import LinkError, WireError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.islands.delivery import DropOldest, Key, Outbox, key_of
from penstock.runtime.islands.links.link import Connection, Connector
from penstock.runtime.islands.protocol import (
    Accepted,
    Answer,
    Dropped,
    DropReason,
    Frame,
    Goodbye,
    Hello,
    Refused,
    ServerMessage,
    Welcome,
    decode_server,
    encode,
    now_us,
)

LOG = logging.getLogger("penstock.uplink")

WELCOME_TIMEOUT_S = 10.0  # how long to wait for Welcome
GOODBYE_TIMEOUT_S = 30.0  # how long an island may take to answer what it has after its Goodbye
DEADLINE_CHECK_S = 0.05  # how often deadlines are checked


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with jitter."""

    first_s: float = 0.05
    max_s: float = 5.0

    def delay(self, failures: int) -> float:
        """Return the delay after this many consecutive failures."""
        return min(self.max_s, self.first_s * 2 ** min(failures, 30)) * random.uniform(0.5, 1)


class Uplink:
    """Keeps frames until they are answered; connects, and reconnects.

    Args:
        hello: the first message on each connection.
        on_reply: called once per frame, with its answer or with why it has none.
        is_valid: whether an answer fits the bundle; see `answer_validator`.
    """

    def __init__(
        self,
        connector: Connector,
        hello: Hello,
        outbox: Outbox,
        on_reply: Callable[[Frame, Answer | Dropped], None],
        *,
        backoff: Backoff = Backoff(),
        is_valid: Callable[[Answer], bool] = lambda answer: True,
    ):
        self._connect, self._hello, self._outbox, self._on_reply = connector, hello, outbox, on_reply
        self._backoff, self._is_valid = backoff, is_valid
        self._can_send, self._has_room = asyncio.Event(), asyncio.Event()
        self._peer_draining = False  # the next island has sent Goodbye
        self._closed = False
        self._progressed = False  # anything was acknowledged over this connection
        self.connected = False
        self.resent = 0  # how many frames were sent again
        self.refusal: str | None = None  # why the next island refuses this one
        self._last_error: str | None = None

    async def send(self, frame: Frame) -> None:
        """Take a frame; waits while the outbox is full, unless that drops its oldest frame."""
        while self._outbox.full and not isinstance(self._outbox.when_full, DropOldest) and not self._closed:
            self._has_room.clear()
            await self._has_room.wait()
        if self._closed:
            self._on_reply(frame, Dropped(*key_of(frame), DropReason.ENDED))
            return
        self._put(frame)

    def offer(self, frame: Frame) -> bool:
        """Take a frame of low priority if at least half of the outbox is free; return whether it was taken."""
        if 2 * len(self._outbox) > self._outbox.capacity or self._closed:
            return False
        self._put(frame)
        return True

    def _put(self, frame: Frame) -> None:
        dropped = self._outbox.put(frame)
        if dropped is not None:
            self._on_reply(dropped, Dropped(*key_of(dropped), DropReason.BUFFER_FULL))
        self._can_send.set()

    async def run(self) -> None:
        """Connect and send until cancelled."""
        deadlines = asyncio.ensure_future(self._check_deadlines())
        failures = 0
        try:
            while True:
                try:
                    connection = await self._connect()
                except LinkError as error:
                    failures, self.refusal = failures + 1, None
                    self._log_once(str(error))
                else:
                    failures = 0 if await self._use(connection) else failures + 1
                await asyncio.sleep(self._backoff.delay(failures))
        finally:
            deadlines.cancel()

    async def drained(self) -> None:
        """Return when no frame is left without an answer."""
        while len(self._outbox):
            self._has_room.clear()
            await self._has_room.wait()

    def close(self) -> None:
        """Report all remaining frames, and later ones, as dropped."""
        self._closed = True
        self._has_room.set()
        for frame in self._outbox.clear():
            self._on_reply(frame, Dropped(*key_of(frame), DropReason.ENDED))

    async def _use(self, connection: Connection) -> bool:
        """Send over one connection until it breaks; return whether anything was acknowledged."""
        writer: asyncio.Future[None] | None = None
        goodbye_timer: asyncio.TimerHandle | None = None
        try:
            await connection.send(encode(self._hello))
            welcome = await _wait_for(self._receive(connection), WELCOME_TIMEOUT_S)
            if not isinstance(welcome, Welcome):
                self._note_refusal(welcome)
                return False
            self.connected, self.refusal, self._last_error = True, None, None
            self._peer_draining = self._progressed = False
            writer = asyncio.ensure_future(self._write(connection, max(1, welcome.window)))
            writer.add_done_callback(lambda _: asyncio.ensure_future(connection.close()))  # ends the loop below
            while (message := await self._receive(connection)) is not None:
                self._handle(message)
                if isinstance(message, Goodbye) and goodbye_timer is None:
                    goodbye_timer = asyncio.get_running_loop().call_later(GOODBYE_TIMEOUT_S, writer.cancel)
            return self._progressed
        except (LinkError, WireError, TimeoutError):
            self.refusal = None
            return self._progressed
        finally:
            self.connected = False
            if goodbye_timer is not None:
                goodbye_timer.cancel()
            if writer is not None:
                writer.cancel()
                await asyncio.wait({writer})
                writer.cancelled() or writer.exception()  # a broken link ends the reader, too
            self.resent += self._outbox.resend()
            self._can_send.set()
            await connection.close()

    def _log_once(self, error: str) -> None:
        """Log why there is no connection, unless that was the last reason too."""
        if error != self._last_error:
            LOG.warning("%s; retrying", error.removesuffix("."))
        self._last_error = error

    def _note_refusal(self, message: ServerMessage | None) -> None:
        refusal = message.text if isinstance(message, Refused) else None
        if refusal is not None and refusal != self.refusal:
            LOG.warning("the next island refuses this one: %s", refusal)
        self.refusal = refusal

    async def _write(self, connection: Connection, window: int) -> None:
        while True:
            while not self._peer_draining and (frame := self._outbox.take(window)) is not None:
                await connection.send(encode(frame))
            self._can_send.clear()
            await self._can_send.wait()

    async def _receive(self, connection: Connection) -> ServerMessage | None:
        content = await connection.receive()
        return None if content is None else decode_server(content)

    def _handle(self, message: ServerMessage) -> None:
        if isinstance(message, Refused) and message.sequence + message.stream:
            message = Dropped(message.stream, message.sequence, DropReason.FAILED)
        if isinstance(message, Goodbye):
            self._peer_draining = True  # send no more; it still answers what it has
        self._progressed |= isinstance(message, (Accepted, Answer, Dropped))
        if isinstance(message, Accepted):
            self._outbox.accept(Key(*message))
            self._can_send.set()  # the window has room again
        if isinstance(message, Answer) and not self._is_valid(message):
            LOG.warning("dropping a frame because its answer does not fit the bundle: %.200r", message)
            message = Dropped(*key_of(message), DropReason.FAILED)
        if isinstance(message, (Answer, Dropped)):
            frame = self._outbox.ack(key_of(message))
            if frame is not None:
                self._on_reply(frame, message)
                self._has_room.set()
                self._can_send.set()

    async def _check_deadlines(self) -> None:
        while True:
            await asyncio.sleep(DEADLINE_CHECK_S)
            for frame in self._outbox.pop_late(now_us()):
                self._on_reply(frame, Dropped(*key_of(frame), DropReason.TOO_LATE))
                self._has_room.set()
                self._can_send.set()


T = TypeVar("T")


async def _wait_for(awaitable: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Do what `asyncio.wait_for` does, which may swallow a cancellation before Python 3.12."""
    task = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if not done:
            raise TimeoutError
        return task.result()
    finally:
        task.cancel()


def answer_validator(manifest: Manifest) -> Callable[[Answer], bool]:
    """Return a function that checks whether an answer fits a bundle."""
    classes, stages = len(manifest.labels), len(manifest.stages)

    def is_valid(answer: Answer) -> bool:
        if not (answer.label < classes and 1 <= answer.exit_stage <= stages and len(answer.scores) < stages):
            return False
        logits = 0 if answer.stopped else classes
        return answer.stopped == (answer.exit_stage < stages) and len(answer.logits) == logits

    return is_valid
