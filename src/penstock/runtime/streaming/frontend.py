"""Front ends: from samples to frames of features, computed once each.

A frame of audio holds log-mel energies or MFCC (`features`); a frame of a sensor is one sample of all axes, unchanged.
A front end keeps only the samples that the next frame needs; any chunking of a stream yields the same frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError
from penstock.runtime.streaming.features import LogMel, frame_features
from penstock.runtime.streaming.frame_ring import FrameRing

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sensor:
    """Use the samples of a sensor unchanged, such as three axes of acceleration and three of rotation."""

    rate_hz: int  # samples per second
    axes: int  # values per sample
    hop: ClassVar[int] = 1  # samples from one frame to the next

    def __post_init__(self) -> None:
        if self.rate_hz < 1 or self.axes < 1:
            raise DataError(f"axes and rate_hz must be at least 1, got {self.axes} and {self.rate_hz}")

    @property
    def values(self) -> int:
        """Values per frame."""
        return self.axes

    def samples(self, frames: int) -> int:
        """Return the number of samples that ``frames`` frames span."""
        return frames


FrontendConfig: TypeAlias = LogMel | Sensor  # how frames are computed


class AudioFrontend:
    """Compute frames of log-mel energies or MFCC."""

    def __init__(self, frontend: LogMel):
        self.frontend = frontend
        self._ring = FrameRing(frontend.window, frontend.hop)

    def push(self, samples: Floats) -> Floats:
        """Add samples; return the frames that they complete, (frames, values)."""
        kept, count = self._ring.push(samples)
        if not count:
            return np.empty((0, self.frontend.values), np.float32)
        steps = (self.frontend.hop * kept.itemsize, kept.itemsize)  # overlapping frames, as a view
        return frame_features(np.ndarray((count, self.frontend.window), kept.dtype, kept, 0, steps), self.frontend)
