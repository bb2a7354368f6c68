"""Send frames over a link that may break, until each has its answer."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.errors import LinkError, WireError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.islands.delivery import DropOldest, Key, Outbox, key_of
from penstock.runtime.islands.links.connection import Connection, Connector
from penstock.runtime.islands.protocol import (
    Accepted,
    Answer,
    Down,
    Dropped,
    Frame,
    Goodbye,
    Hello,
    Reason,
    Refused,
    Welcome,
    decode_down,
    encode,
)

LOG = logging.getLogger("penstock.sender")

WELCOME_S = 10.0
"""How long to wait for a welcome."""

GOODBYE_S = 30.0
"""How long an island that said goodbye may take to answer what it has."""

LOOK_S = 0.05
"""How often deadlines are looked at."""


@dataclass(frozen=True)
class Backoff:
    """How long to wait before the next attempt: twice as long each time, by chance somewhat less, up to a limit."""

    first_s: float = 0.05
    most_s: float = 5.0

    def after(self, failures: int) -> float:
        """Return the pause after so many failures in a row."""
        return min(self.most_s, self.first_s * 2 ** min(failures, 30)) * random.uniform(0.5, 1)


class Uplink:
    """Keeps frames until they are answered; connects, and connects again.

    Args:
        dial: makes a connection to the next island.
        hello: what is said first.
        outbox: where frames are kept.
        settled: told once of each frame that has an answer, or will get none.
        makes_sense: says whether an answer can be one; `makes_sense_for` knows it of a bundle.

    Attributes:
        connected: whether the next island is there.
        resent: frames that were sent again.
        refusal: why the next island does not want us; None as long as it does.
    """

    def __init__(
        self,
        connector: Connector,
        hello: Hello,
        outbox: Outbox,
        acked: Callable[[Frame, Answer | Dropped], None],
        *,
        backoff: Backoff = Backoff(),
        makes_sense: Callable[[Answer], bool] = lambda answer: True,
    ):
        self._makes_sense = makes_sense
        self._dial, self._hello, self._outbox, self._settled, self._backoff = connector, hello, outbox, acked, backoff
        self._something = asyncio.Event()  # to send
        self._room = asyncio.Event()
        self._leaving = False  # the next island said goodbye
        self._ended = self._useful = False
        self.connected = False
        self.resent = 0
        self.refusal: str | None = None
        self._complaint: str | None = None

    async def send(self, frame: Frame) -> None:
        """Take a frame; waits while the buffer is full, unless that drops its oldest."""
        while self._outbox.full and not isinstance(self._outbox.when_full, DropOldest) and not self._ended:
            self._room.clear()
            await self._room.wait()
        if self._ended:
            self._settled(frame, Dropped(*key_of(frame), Reason.ENDED))
            return
        self._put(frame)

    def offer(self, frame: Frame) -> bool:
        """Take a frame that matters less than others, if at least half of the buffer is free; say whether it was."""
        if 2 * len(self._outbox) > self._outbox.capacity or self._ended:
            return False
        self._put(frame)
        return True

    def _put(self, frame: Frame) -> None:
        dropped = self._outbox.put(frame)
        if dropped is not None:
            self._settled(dropped, Dropped(*key_of(dropped), Reason.BUFFER_FULL))
        self._something.set()

    async def run(self) -> None:
        """Connect and send, for ever."""
        looking = asyncio.ensure_future(self._look_at_deadlines())
        failures = 0
        try:
            while True:
                try:
                    connection = await self._dial()
                except LinkError as error:
                    failures, self.refusal = failures + 1, None
                    self._complain(str(error))
                else:
                    failures = 0 if await self._over(connection) else failures + 1
                await asyncio.sleep(self._backoff.after(failures))
        finally:
            looking.cancel()

    async def drained(self) -> None:
        """Return when no frame is left without an answer."""
        while len(self._outbox):
            self._room.clear()
            await self._room.wait()

    def give_up(self, reason: Reason) -> None:
        """Report all that is left as dropped, and all that comes."""
        self._ended = True
        self._room.set()
        for frame in self._outbox.empty():
            self._settled(frame, Dropped(*key_of(frame), reason))

    async def _over(self, connection: Connection) -> bool:
        """Send over one connection until it breaks; return whether it was of any use."""
        writing: asyncio.Future[None] | None = None
        patience: asyncio.TimerHandle | None = None
        try:
            await connection.send(encode(self._hello))
            welcome = await _within(WELCOME_S, self._heard(connection))
            if not isinstance(welcome, Welcome):
                self._note(welcome)
                return False
            self.connected, self.refusal, self._leaving, self._useful = True, None, False, False
            self._complaint = None
            writing = asyncio.ensure_future(self._write(connection, max(1, welcome.window)))
            writing.add_done_callback(lambda _: asyncio.ensure_future(connection.close()))  # wakes who reads
            while (message := await self._heard(connection)) is not None:
                self._hear(message)
                if isinstance(message, Goodbye) and patience is None:
                    patience = asyncio.get_running_loop().call_later(GOODBYE_S, writing.cancel)
            return self._useful
        except (LinkError, WireError, TimeoutError):
            self.refusal = None
            return self._useful
        finally:
            self.connected = False
            if patience is not None:
                patience.cancel()
            if writing is not None:
                writing.cancel()
                await asyncio.wait({writing})
                writing.cancelled() or writing.exception()  # a broken link is noticed by who reads, too
            self.resent += self._outbox.resend()
            self._something.set()
            await connection.close()

    def _complain(self, text: str) -> None:
        """Say why there is no connection, once."""
        if text != self._complaint:
            LOG.warning("%s; trying on", text.removesuffix("."))
        self._complaint = text

    def _note(self, message: Down | None) -> None:
        """Say why the next island does not want us, once."""
        refusal = message.text if isinstance(message, Refused) else None
        if refusal is not None and refusal != self.refusal:
            LOG.warning("the next island refuses us: %s", refusal)
        self.refusal = refusal

    async def _write(self, connection: Connection, window: int) -> None:
        while True:
            while not self._leaving and (frame := self._outbox.take(window)) is not None:
                await connection.send(encode(frame))
            self._something.clear()
            await self._something.wait()

    async def _heard(self, connection: Connection) -> Down | None:
        content = await connection.receive()
        return None if content is None else decode_down(content)

    def _hear(self, message: Down) -> None:
        if isinstance(message, Refused) and message.sequence + message.stream:
            message = Dropped(message.stream, message.sequence, Reason.FAILED)
        if isinstance(message, Goodbye):
            self._leaving = True  # no more to this one, but what it has it still answers
        self._useful |= isinstance(message, (Accepted, Answer, Dropped))
        if isinstance(message, Accepted):
            self._outbox.accept(Key(*message))
            self._something.set()  # the window has room again
        if isinstance(message, Answer) and not self._makes_sense(message):
            LOG.warning("an answer came that makes no sense, and counts as a failure: %.200r", message)
            message = Dropped(*key_of(message), Reason.FAILED)
        if isinstance(message, (Answer, Dropped)):
            frame = self._outbox.ack(key_of(message))
            if frame is not None:
                self._settled(frame, message)
                self._room.set()
                self._something.set()

    async def _look_at_deadlines(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for frame in self._outbox.late(now_us()):
                self._settled(frame, Dropped(*key_of(frame), Reason.TOO_LATE))
                self._room.set()
                self._something.set()


T = TypeVar("T")


async def _within(seconds: float, awaited: Coroutine[Any, Any, T]) -> T:
    """Do what `asyncio.wait_for` does, which before Python 3.12 may swallow a cancellation.

    Raises:
        TimeoutError: when it takes longer.
    """
    task = asyncio.ensure_future(awaited)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            raise TimeoutError
        return task.result()
    finally:
        task.cancel()


def makes_sense_for(manifest: Manifest) -> Callable[[Answer], bool]:
    """Return what tells whether an answer can be one of this bundle."""
    classes, stages = len(manifest.labels), len(manifest.stages)

    def makes_sense(answer: Answer) -> bool:
        fits = answer.label < classes and answer.stopped_by < stages and len(answer.scores) < stages
        return fits and len(answer.logits) == (0 if answer.stopped_by else classes)

    return makes_sense


def now_us() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000
