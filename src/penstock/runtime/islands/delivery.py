"""Exactly one answer per frame: what a sender keeps, and what a receiver remembers.

A sender keeps a frame until it is answered, not only until it is received: the receiver has it in memory only, and may
be killed. After a reconnect the sender sends all unanswered frames again. A receiver recognises duplicates: it never
runs a frame twice at once, and repeats earlier answers. So an island loses nothing without a disk, as long as its
sender lives. For clients that keep nothing, the first island can keep frames in a file (journal.py).

This module is pure state: it does no I/O, never waits, and reads no clock.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.errors import DeliveryError, StorageError
from penstock.runtime.islands.protocol import Answer, Dropped, Frame

if TYPE_CHECKING:  # the journal imports this module
    from penstock.runtime.islands.journal import FileJournal

LOG = logging.getLogger("penstock.delivery")


class Key(NamedTuple):
    """Identifies a frame."""

    stream: int
    sequence: int


def key_of(message: Frame | Answer | Dropped) -> Key:
    """Return the key of the frame that a message is about."""
    return Key(message.stream, message.sequence)


@dataclass(frozen=True)
class Wait:
    """Apply back-pressure when full. For sources that can pause, such as files."""


@dataclass(frozen=True)
class DropOldest:
    """Drop and report the oldest frame when full. For sources that cannot pause, such as microphones."""


WhenFull: TypeAlias = Wait | DropOldest


class Outbox:
    """Unanswered frames: waiting to be sent, in flight, or accepted by the next island.

    Args:
        capacity: the largest number of frames.
        journal: keeps the frames over a restart; None to keep them in memory only.
    """

    def __init__(self, capacity: int, when_full: WhenFull = Wait(), journal: FileJournal | None = None):
        if capacity < 1:
            raise DeliveryError(f"the capacity of an outbox must be at least 1, got {capacity}.")
        self.capacity, self.when_full = capacity, when_full
        self._journal = journal
        stored = () if journal is None else journal.frames()
        self._frames = OrderedDict((key_of(frame), frame) for frame in stored)
        self._waiting = self._frames.copy()  # those still to be sent: always the last ones
        self._in_flight: set[Key] = set()  # those sent, and neither accepted nor answered

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def full(self) -> bool:
        """Whether `put` would drop a frame or raise."""
        return len(self._frames) >= self.capacity

    def put(self, frame: Frame) -> Frame | None:
        """Add a frame; return the frame that was dropped to make room, if any.

        Raises:
            DeliveryError: if the outbox is full and its policy is `Wait`.
        """
        key, dropped = key_of(frame), None
        if key in self._frames:
            return None
        if self.full and isinstance(self.when_full, Wait):
            raise DeliveryError(f"the outbox is full ({self.capacity} frames): wait for an answer before adding more.")
        if self._journal is not None:
            self._journal.append(frame)
        if self.full:
            dropped = self._remove(next(iter(self._waiting or self._frames)))
        self._frames[key] = self._waiting[key] = frame
        return dropped

    def take(self, window: int) -> Frame | None:
        """Return the next frame to send; None if there is none, or ``window`` frames are in flight."""
        if not self._waiting or len(self._in_flight) >= window:
            return None
        key, frame = self._waiting.popitem(last=False)
        self._in_flight.add(key)
        return frame

    def accept(self, key: Key) -> None:
        """Record that the next island has a frame: it is no longer in flight, but kept until it is answered."""
        self._in_flight.discard(key)

    def ack(self, key: Key) -> Frame | None:
        """Remove an answered frame and return it; None if it is unknown, because it was answered before."""
        return self._remove(key) if key in self._frames else None

    def resend(self) -> int:
        """Queue all unanswered frames again, in order and before others; return how many were sent before."""
        sent = len(self._frames) - len(self._waiting)
        self._waiting = self._frames.copy()
        self._in_flight.clear()
        return sent

    def pop_late(self, now_us: int) -> list[Frame]:
        """Remove and return the frames whose deadline has passed."""
        late = [key for key, frame in self._frames.items() if is_late(frame, now_us)]
        return [self._remove(key) for key in late]

    def clear(self) -> list[Frame]:
        """Remove and return all frames, oldest first."""
        return [self._remove(key) for key in list(self._frames)]

    def _remove(self, key: Key) -> Frame:
        self._waiting.pop(key, None)
        self._in_flight.discard(key)
        frame = self._frames.pop(key)
        if self._journal is not None:
            try:
                self._journal.ack(key)
            except StorageError as error:  # after a restart it is sent once more, as a duplicate
                LOG.warning("%s", error)
        return frame


def is_late(frame: Frame, now_us: int) -> bool:
    """Return whether the deadline of a frame has passed."""
    return frame.deadline_ms > 0 and now_us > frame.captured_us + 1000 * frame.deadline_ms


class Inbox:
    """Frames in progress, and the latest answers, to recognise duplicates.

    Args:
        memory: how many answers to remember. As many as a sender may have unanswered frames are enough: it sends no
            others again.
    """

    def __init__(self, memory: int):
        self._memory = memory
        self._pending: set[Key] = set()
        self._answers: OrderedDict[Key, Answer | Dropped] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def answer_to(self, key: Key) -> Answer | Dropped | None:
        """Return the answer to a frame; None if it has none, or it is no longer remembered."""
        return self._answers.get(key)

    def start(self, key: Key) -> bool:
        """Record that a frame is in progress; return whether it is new."""
        is_new = key not in self._pending
        self._pending.add(key)
        return is_new

    def forget(self, key: Key) -> None:
        """Treat a frame in progress as never seen."""
        self._pending.discard(key)

    def answer(self, key: Key, answer: Answer | Dropped) -> None:
        """Remember the answer to a frame, which is no longer in progress."""
        self._pending.discard(key)
        self._answers[key] = answer
        self._answers.move_to_end(key)
        if len(self._answers) > self._memory:
            self._answers.popitem(last=False)
