"""Every frame is answered once: what a sender keeps until then, and what a receiver remembers.

A sender keeps a frame until its answer is there, not only until it was received: whoever is killed in between had it
in memory alone. After a reconnect it sends again what has no answer. A receiver recognises what it has seen, so that
nothing is worked on twice at once, and says again what it has said. So an island needs no disk to lose nothing, as long
as who sent to it lives; a source that keeps nothing itself has a first island that keeps frames in a file (journal.py).

Nothing here waits, sends or looks at a clock: islands do.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from penstock.errors import DeliveryError, StorageError
from penstock.runtime.islands.protocol import Answer, Dropped, Frame

LOG = logging.getLogger("penstock.delivery")


class Key(NamedTuple):
    """What tells a frame from all others."""

    stream: int
    sequence: int


def key_of(message: Frame | Answer | Dropped) -> Key:
    """Return what a message is about."""
    return Key(message.stream, message.sequence)


@dataclass(frozen=True)
class Wait:
    """A full buffer makes who fills it wait: back-pressure. For sources that can pause, such as files."""


@dataclass(frozen=True)
class DropOldest:
    """A full buffer loses its oldest frame, which is reported. For sources that cannot pause, such as microphones."""


WhenFull: TypeAlias = Wait | DropOldest


class Journal(Protocol):
    """Where an outbox writes down what it keeps, to have it after a restart."""

    def kept(self) -> Iterable[Frame]:
        """Return what was kept and not settled, oldest first."""
        ...

    def keep(self, frame: Frame) -> None:
        """Write down a frame."""
        ...

    def ack(self, key: Key) -> None:
        """Write down that a frame is done with."""
        ...


class Outbox:
    """Frames that wait to be sent, that are on their way, or that were accepted and wait for their answer.

    Args:
        capacity: frames at most.
        when_full: what happens then.
        journal: where they are written down; None: in memory alone.
    """

    def __init__(self, capacity: int, when_full: WhenFull = Wait(), journal: Journal | None = None):
        if capacity < 1:
            raise DeliveryError(f"a buffer for {capacity} frames is not possible: it holds at least one.")
        self.capacity, self.when_full = capacity, when_full
        self._journal = journal
        self._frames: OrderedDict[Key, Frame] = OrderedDict()
        self._waiting: deque[Key] = deque()
        self._flying: OrderedDict[Key, None] = OrderedDict()
        self._accepted: OrderedDict[Key, None] = OrderedDict()
        for frame in () if journal is None else journal.kept():
            self._frames[key_of(frame)] = frame
            self._waiting.append(key_of(frame))

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, key: object) -> bool:
        return key in self._frames

    @property
    def full(self) -> bool:
        """Whether `put` would have to make room."""
        return len(self._frames) >= self.capacity

    @property
    def in_flight(self) -> int:
        """How many were sent, and are neither accepted nor answered."""
        return len(self._flying)

    def put(self, frame: Frame) -> Frame | None:
        """Keep a frame; return the one that was dropped to make room, if any.

        Raises:
            DeliveryError: when the buffer is full, and who fills it is to wait.
        """
        key, dropped = key_of(frame), None
        if key in self._frames:
            return None
        if self.full and isinstance(self.when_full, Wait):
            raise DeliveryError(f"a buffer of {self.capacity} frames is full: wait for an answer before the next.")
        if self._journal is not None:
            self._journal.keep(frame)
        if self.full:
            dropped = self._remove(self._waiting[0] if self._waiting else next(iter(self._frames)))
        self._frames[key] = frame
        self._waiting.append(key)
        return dropped

    def take(self, window: int) -> Frame | None:
        """Return the next frame to send; None while there is none, or ``window`` of them are on their way."""
        if not self._waiting or len(self._flying) >= window:
            return None
        key = self._waiting.popleft()
        self._flying[key] = None
        return self._frames[key]

    def accept(self, key: Key) -> None:
        """Note that a frame arrived: it is no longer on its way, and is kept all the same until it is answered."""
        if key in self._flying:
            del self._flying[key]
            self._accepted[key] = None

    def ack(self, key: Key) -> Frame | None:
        """Forget a frame that has its answer; return it, or None if it is not known: it was settled before."""
        return self._remove(key) if key in self._frames else None

    def resend(self) -> int:
        """Let all that was sent without an answer be sent again, first of all and in order; return how many."""
        again = [key for key in self._frames if key in self._flying or key in self._accepted]
        self._waiting.extendleft(reversed(again))
        self._flying.clear()
        self._accepted.clear()
        return len(again)

    def late(self, now_us: int) -> list[Frame]:
        """Forget and return the frames whose deadline has passed."""
        passed = [key for key, frame in self._frames.items() if is_late(frame, now_us)]
        return [self._remove(key) for key in passed]

    def empty(self) -> list[Frame]:
        """Forget and return all frames, oldest first."""
        return [self._remove(key) for key in list(self._frames)]

    def _remove(self, key: Key) -> Frame:
        if key in self._flying:
            del self._flying[key]
        elif key in self._accepted:
            del self._accepted[key]
        else:
            self._waiting.remove(key)
        frame = self._frames.pop(key)
        if self._journal is not None:
            try:
                self._journal.ack(key)
            except StorageError as error:  # after a restart it is sent once more, and recognised
                LOG.warning("%s", error)
        return frame


def is_late(frame: Frame, now_us: int) -> bool:
    """Say whether an answer to a frame would be of no use any more."""
    return frame.deadline_ms > 0 and now_us > frame.captured_us + 1000 * frame.deadline_ms


class AlreadyAnswered(NamedTuple):
    """A frame that was answered before: say so again."""

    answer: Answer | Dropped


class InProgress(NamedTuple):
    """A frame that is being worked on: its answer will come."""


class NewFrame(NamedTuple):
    """A frame that was not seen yet."""


PENDING, NEW = InProgress(), NewFrame()


class Inbox:
    """What a receiver remembers: the frames that it works on, and its last answers.

    Args:
        memory: how many answers; as many as a sender may have frames without an answer will do, because it sends no
            other again.
    """

    def __init__(self, memory: int):
        self._memory = memory
        self._pending: set[Key] = set()
        self._answers: OrderedDict[Key, Answer | Dropped] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def receive(self, key: Key) -> NewFrame | InProgress | AlreadyAnswered:
        """Say what is known of a frame; a new one is being worked on from now on."""
        if key in self._answers:
            return AlreadyAnswered(self._answers[key])
        if key in self._pending:
            return PENDING
        self._pending.add(key)
        return NEW

    def forget(self, key: Key) -> None:
        """Note that a frame is not being worked on after all."""
        self._pending.discard(key)

    def answer(self, key: Key, answer: Answer | Dropped) -> None:
        """Remember the answer to a frame."""
        self._pending.discard(key)
        self._answers[key] = answer
        self._answers.move_to_end(key)
        if len(self._answers) > self._memory:
            self._answers.popitem(last=False)
