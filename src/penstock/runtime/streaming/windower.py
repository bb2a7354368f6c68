"""Cut a stream into the windows that the first stage takes: input guard, front end and ring of frames together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.frame_ring import FrameRing
from penstock.runtime.streaming.frontend import Sensor, build_frontend, silent_frame
from penstock.runtime.streaming.input_guard import InputGuard

ROUNDING = 1e-3  # tolerance for a frame of digital silence: chunks of another length sum in another order


class Window(NamedTuple):
    """A window, or a gap between two windows."""

    time_s: float  # end of the window or the gap in stream time
    window: npt.NDArray[np.float32] | None  # (values, frames); None for a gap
    silent: bool  # whether the window holds nothing but digital silence


class Windower:
    """Cut a stream into windows."""

    def __init__(self, stream_config: StreamConfig):
        frontend = stream_config.frontend
        self.stream_config = stream_config
        self.guard = InputGuard(frontend.axes if isinstance(frontend, Sensor) else None)
        self._frontend = build_frontend(frontend)
        self._ring = FrameRing(stream_config.frames, stream_config.hop, (frontend.values,))
        self._step = stream_config.hop * frontend.hop
        self._silence = _silence(stream_config)
        self._next_start = 0  # start of the next piece if there is no gap
        self._window_end = 0  # sample at which the next window ends
        self._restart(0)

    def push(self, samples: npt.NDArray[Any], *, lost: int = 0) -> list[Window]:
        """Add a block; return the windows that it completes and the gaps between them."""
        windows, config, rate_hz = [], self.stream_config, self.stream_config.frontend.rate_hz
        for piece in self.guard.push(samples, lost=lost):
            if piece.start != self._next_start:
                self._restart(piece.start)
                windows.append(Window(piece.start / rate_hz, None, False))
            self._next_start = piece.start + len(piece.samples)
            frames, count = self._ring.push(config.standardised(self._frontend.push(piece.samples)))
            for start in range(0, count * config.hop, config.hop):
                window = np.ascontiguousarray(frames[start : start + config.frames].T)
                windows.append(Window(self._window_end / rate_hz, window, self._is_silent(window)))
                self._window_end += self._step
        return windows

    def _is_silent(self, window: npt.NDArray[np.float32]) -> bool:
        if self._silence is None:
            return False
        frame, rounding = self._silence
        if abs(window[0, -1] - frame[0, 0]) > rounding[0, 0]:  # enough to reject almost every window with sound
            return False
        return bool((np.abs(window - frame) <= rounding).all())

    def _restart(self, start: int) -> None:
        self._frontend.reset()
        self._ring.reset()
        self._window_end = start + self.stream_config.frontend.samples(self.stream_config.frames)


def _silence(stream_config: StreamConfig) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None:
    """Return a standardised frame of digital silence and its tolerance, (values, 1) each; None for a sensor."""
    frame = silent_frame(stream_config.frontend)
    if frame is None:
        return None
    return stream_config.standardised(frame)[:, None], (ROUNDING / np.array(stream_config.std, np.float32))[:, None]
