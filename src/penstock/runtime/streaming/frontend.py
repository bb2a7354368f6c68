"""The front end: from samples to frames of features as they come, nothing computed twice.

Of sound a frame is a row of log-mel energies or MFCC (`features`); of a sensor it is a sample of all its axes. A
front keeps the samples that the next frame needs, and no others: any chunking gives the frames of the whole stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError, ShapeError
from penstock.runtime.streaming.features import LogMel, frame_features

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sensor:
    """Take the samples of a sensor as they are, such as three axes of acceleration and three of rotation.

    Attributes:
        rate_hz: samples a second.
        axes: numbers of a sample.
    """

    rate_hz: int
    axes: int

    def __post_init__(self) -> None:
        if self.rate_hz < 1 or self.axes < 1:
            raise DataError(f"a sensor of {self.axes} axes at {self.rate_hz} Hz came: both are 1 or more.")

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return 1

    @property
    def values(self) -> int:
        """Numbers of a frame."""
        return self.axes

    def samples(self, frames: int) -> int:
        """Return the samples that so many frames need."""
        return frames


FrontendConfig: TypeAlias = LogMel | Sensor
"""What a frame is made of."""


class Frontend(Protocol):
    """Turns samples into frames."""

    def push(self, samples: Floats) -> Floats:
        """Take more samples; return the frames that they complete: (frames, values)."""

    def reset(self) -> None:
        """Begin anew, as behind a gap."""


class AudioFrontend:
    """Frames of log-mel energies or MFCC, each computed once, when its last sample is there."""

    def __init__(self, frontend: LogMel):
        self.frontend = frontend
        self._rest = np.empty(0, np.float32)
        self._skip = 0  # samples that no frame needs, where frames are further apart than they are long

    def push(self, samples: Floats) -> Floats:
        dropped = min(self._skip, len(samples))
        self._skip -= dropped
        heard = np.concatenate([self._rest, samples[dropped:]])
        count = self.frontend.frames(len(heard))
        self._skip += max(0, count * self.frontend.hop - len(heard))
        self._rest = heard[count * self.frontend.hop :].copy()  # without the copy it would keep all that was heard
        if not count:
            return np.empty((0, self.frontend.values), np.float32)
        steps = (self.frontend.hop * heard.itemsize, heard.itemsize)  # a view: frames overlap, and no sample is copied
        return frame_features(np.ndarray((count, self.frontend.window), heard.dtype, heard, 0, steps), self.frontend)

    def reset(self) -> None:
        self._rest, self._skip = self._rest[:0], 0


class SensorFrontend:
    """Frames that are the samples."""

    def __init__(self, frontend: Sensor):
        self.frontend = frontend

    def push(self, samples: Floats) -> Floats:
        if samples.ndim != 2 or samples.shape[1] != self.frontend.axes:
            raise ShapeError(f"samples of shape {samples.shape} came: give (samples, {self.frontend.axes}).")
        return samples

    def reset(self) -> None:
        """Do nothing: no frame needs more than its own sample."""


def build_frontend(frontend: FrontendConfig) -> Frontend:
    """Return a front that makes such frames."""
    return SensorFrontend(frontend) if isinstance(frontend, Sensor) else AudioFrontend(frontend)


def silent_frame(frontend: FrontendConfig) -> Floats | None:
    """Return the frame of digital silence: (values,); None for a sensor, which has no silence."""
    if isinstance(frontend, Sensor):
        return None
    return frame_features(np.zeros((1, frontend.window), np.float32), frontend)[0]
