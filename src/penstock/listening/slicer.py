"""From a stream to windows as the first stage takes them: the ear, the front and the ring of frames together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.listening.ear import Ear
from penstock.listening.front import Sensor, front_of, silent_frame
from penstock.listening.hearing import Hearing
from penstock.listening.windows import Windows

ROUNDING = 1e-3
"""By which a frame of digital silence may differ from another: sums come in another order in another chunk."""


class Slice(NamedTuple):
    """A window, or a gap between two.

    Attributes:
        time_s: the window's end, or that of the gap.
        window: (values, frames); None for a gap.
        silent: whether there is digital silence alone in it.
    """

    time_s: float
    window: npt.NDArray[np.float32] | None
    silent: bool


class Slicer:
    """Cuts a stream into windows as the first stage takes them: the ear, the front and the ring of frames."""

    def __init__(self, hearing: Hearing):
        sense = hearing.sense
        self.hearing = hearing
        self.ear = Ear(sense.axes if isinstance(sense, Sensor) else None)
        self._front = front_of(sense)
        self._windows = Windows(hearing.frames, hearing.hop, sense.values)
        self._sounds = Windows(hearing.frames, hearing.hop, 1)
        self._silence = silent_frame(sense)
        self._due = 0  # the sample that the next piece begins with, if there is no gap
        self._base, self._count = 0, 0  # the first sample since the last gap, and the windows since then

    def push(self, samples: npt.NDArray[Any], *, lost: int = 0) -> Iterator[Slice]:
        """Take a block; give the windows that it completes, and say where a gap lies between two of them."""
        for piece in self.ear.hear(samples, lost=lost):
            if piece.start != self._due:
                self._forget(piece.start)
                yield Slice(piece.start / self.hearing.sense.rate_hz, None, False)
            self._due = piece.start + len(piece.samples)
            frames = self._front.push(piece.samples)
            loud = np.ones((len(frames), 1), np.float32)
            if self._silence is not None:
                loud[:, 0] = (np.abs(frames - self._silence) > ROUNDING).any(1)
            windows = self._windows.push(self.hearing.standardised(frames))
            for window, sounds in zip(windows, self._sounds.push(loud), strict=True):
                yield Slice(self._end_s(), window, not sounds.any())
                self._count += 1

    def _forget(self, start: int) -> None:
        self._front.forget()
        self._windows.forget()
        self._sounds.forget()
        self._base, self._count = start, 0

    def _end_s(self) -> float:
        sense = self.hearing.sense
        frames = self.hearing.frames + self._count * self.hearing.hop
        return (self._base + sense.samples(frames)) / sense.rate_hz
