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


Sense: TypeAlias = LogMel | Sensor
"""What a frame is made of."""


class Front(Protocol):
    """Turns samples into frames."""

    def push(self, samples: Floats) -> Floats:
        """Take more samples; return the frames that they complete: (frames, values)."""

    def forget(self) -> None:
        """Begin anew, as behind a gap."""


class SoundFront:
    """Frames of log-mel energies or MFCC, each computed once, when its last sample is there."""

    def __init__(self, sense: LogMel):
        self.sense = sense
        self._rest = np.empty(0, np.float32)
        self._skip = 0  # samples that no frame needs, where frames are further apart than they are long

    def push(self, samples: Floats) -> Floats:
        dropped = min(self._skip, len(samples))
        self._skip -= dropped
        heard = np.concatenate([self._rest, samples[dropped:]])
        count = self.sense.frames(len(heard))
        self._skip += max(0, count * self.sense.hop - len(heard))
        self._rest = heard[count * self.sense.hop :].copy()  # without the copy it would keep all that was heard
        if not count:
            return np.empty((0, self.sense.values), np.float32)
        steps = (self.sense.hop * heard.itemsize, heard.itemsize)  # a view: frames overlap, and no sample is copied
        return frame_features(np.ndarray((count, self.sense.window), heard.dtype, heard, 0, steps), self.sense)

    def forget(self) -> None:
        self._rest, self._skip = self._rest[:0], 0


class SensorFront:
    """Frames that are the samples."""

    def __init__(self, sense: Sensor):
        self.sense = sense

    def push(self, samples: Floats) -> Floats:
        if samples.ndim != 2 or samples.shape[1] != self.sense.axes:
            raise ShapeError(f"samples of shape {samples.shape} came: give (samples, {self.sense.axes}).")
        return samples

    def forget(self) -> None:
        """Do nothing: no frame needs more than its own sample."""


def front_of(sense: Sense) -> Front:
    """Return a front that makes such frames."""
    return SensorFront(sense) if isinstance(sense, Sensor) else SoundFront(sense)


def silent_frame(sense: Sense) -> Floats | None:
    """Return the frame of digital silence: (values,); None for a sensor, which has no silence."""
    if isinstance(sense, Sensor):
        return None
    return frame_features(np.zeros((1, sense.window), np.float32), sense)[0]
