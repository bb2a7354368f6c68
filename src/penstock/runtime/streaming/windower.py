"""Cut a stream into the windows that the first stage takes: input guard, front end and ring of frames together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.features import frame_features
from penstock.runtime.streaming.frame_ring import FrameRing
from penstock.runtime.streaming.frontend import AudioFrontend, Sensor
from penstock.runtime.streaming.input_guard import InputGuard

ROUNDING = 1e-3  # tolerance for a frame of digital silence: chunks of another length sum in another order


class Window(NamedTuple):
    """A window, or a gap between two windows."""

    time_s: float  # end of the window or the gap in stream time
    values: npt.NDArray[np.float32] | None  # (values, frames); None if no stage runs, for a gap and for silence
    silent: bool = False  # whether the window holds nothing but digital silence


class Windower:
    """Cut a stream into windows."""

    def __init__(self, stream_config: StreamConfig):
        frontend = stream_config.frontend
        self.stream_config = stream_config
        self.guard = InputGuard(frontend.axes if isinstance(frontend, Sensor) else None)
        self._step = stream_config.hop * frontend.hop
        self._silence = _silence(stream_config)
        self._next_start = 0  # start of the next piece if there is no gap
        self._restart(0)

    def push(self, samples: npt.NDArray[Any], *, lost: int = 0) -> list[Window]:
        """Add a block; return the windows that it completes and the gaps between them."""
        windows, config, rate_hz = [], self.stream_config, self.stream_config.frontend.rate_hz
        for piece in self.guard.push(samples, lost=lost):
            if piece.start != self._next_start:
                self._restart(piece.start)
                windows.append(Window(piece.start / rate_hz, None))
            self._next_start = piece.start + len(piece.samples)
            new = piece.samples if self._frontend is None else self._frontend.push(piece.samples)  # frames
            frames, count = self._ring.push(config.standardised(new))
            for start in range(0, count * config.hop, config.hop):
                values = np.ascontiguousarray(frames[start : start + config.frames].T)
                silent = self._is_silent(values)
                windows.append(Window(self._window_end / rate_hz, None if silent else values, silent))
                self._window_end += self._step
        return windows

    def _is_silent(self, values: npt.NDArray[np.float32]) -> bool:
        if self._silence is None:
            return False
        frame, rounding = self._silence
        if abs(values[0, -1] - frame[0, 0]) > rounding[0, 0]:  # enough to reject almost every window with sound
            return False
        return bool((np.abs(values - frame) <= rounding).all())

    def _restart(self, start: int) -> None:
        """Begin anew at a sample of the stream: at its start, and after each gap."""
        config, frontend = self.stream_config, self.stream_config.frontend
        self._frontend = None if isinstance(frontend, Sensor) else AudioFrontend(frontend)
        self._ring = FrameRing(config.frames, config.hop, (frontend.values,))
        self._window_end = start + frontend.samples(config.frames)  # sample at which the next window ends


def _silence(stream_config: StreamConfig) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None:
    """Return a standardised frame of digital silence and its tolerance, (values, 1) each; None for a sensor."""
    frontend = stream_config.frontend
    if isinstance(frontend, Sensor):
        return None
    frame = frame_features(np.zeros((1, frontend.window), np.float32), frontend)[0]
    return stream_config.standardised(frame)[:, None], (ROUNDING / np.array(stream_config.std, np.float32))[:, None]
