"""From a stream to windows as the first stage takes them: the ear, the front and the ring of frames together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.frame_ring import FrameRing
from penstock.runtime.streaming.frontend import Sensor, build_frontend, silent_frame
from penstock.runtime.streaming.input_guard import InputGuard

ROUNDING = 1e-3
"""By which a frame of digital silence may differ from another: sums come in another order in another chunk."""


class Window(NamedTuple):
    """A window, or a gap between two.

    Attributes:
        time_s: the window's end, or that of the gap.
        window: (values, frames); None for a gap.
        silent: whether there is digital silence alone in it.
    """

    time_s: float
    window: npt.NDArray[np.float32] | None
    silent: bool


class Windower:
    """Cuts a stream into windows as the first stage takes them: the ear, the front and the ring of frames."""

    def __init__(self, stream_config: StreamConfig):
        frontend = stream_config.frontend
        self.stream_config = stream_config
        self.ear = InputGuard(frontend.axes if isinstance(frontend, Sensor) else None)
        self._front = build_frontend(frontend)
        self._windows = FrameRing(stream_config.frames, stream_config.hop, frontend.values)
        self._step = stream_config.hop * frontend.hop
        self._silence = _silence(stream_config)
        self._due = 0  # the sample that the next piece begins with, if there is no gap
        self._end = 0  # the sample that the next window ends with
        self._forget(0)

    def push(self, samples: npt.NDArray[Any], *, lost: int = 0) -> list[Window]:
        """Take a block; return the windows that it completes, and where a gap lies between two of them."""
        slices = []
        for piece in self.ear.hear(samples, lost=lost):
            if piece.start != self._due:
                self._forget(piece.start)
                slices.append(Window(piece.start / self.stream_config.frontend.rate_hz, None, False))
            self._due = piece.start + len(piece.samples)
            frames = self._front.push(piece.samples)
            for window in self._windows.push(self.stream_config.standardised(frames)):
                slices.append(Window(self._end / self.stream_config.frontend.rate_hz, window, self._is_silent(window)))
                self._end += self._step
        return slices

    def _is_silent(self, window: npt.NDArray[np.float32]) -> bool:
        if self._silence is None:
            return False
        frame, rounding = self._silence
        if abs(window[0, -1] - frame[0, 0]) > rounding[0, 0]:  # where there is sound, one value tells
            return False
        return bool((np.abs(window - frame) <= rounding).all())

    def _forget(self, start: int) -> None:
        self._front.reset()
        self._windows.reset()
        self._end = start + self.stream_config.frontend.samples(self.stream_config.frames)


def _silence(stream_config: StreamConfig) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None:
    """Return a frame of digital silence, standardised, and how far others may be from it: (values, 1) both."""
    frame = silent_frame(stream_config.frontend)
    if frame is None:
        return None
    return stream_config.standardised(frame)[:, None], (ROUNDING / np.array(stream_config.std, np.float32))[:, None]
