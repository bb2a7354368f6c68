"""A ring of frames that yields overlapping windows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError

Floats = npt.NDArray[np.float32]


class FrameRing:
    """Keep the last frames, and return a window every ``hop`` frames.

    Args:
        frames: length of a window.
        hop: frames from one window to the next.
        values: values per frame.
    """

    def __init__(self, frames: int, hop: int, values: int):
        if frames < 1 or hop < 1:
            raise DataError(f"frames and hop must be at least 1, got {frames} and {hop}")
        self.frames, self.hop = frames, hop
        self._empty = np.empty((values, 0), np.float32)
        self._kept = self._empty
        self._skip = 0  # frames to skip, where hop is larger than a window

    def push(self, frames: Floats) -> list[Floats]:
        """Add frames (frames, values); return the windows that they complete, each (values, frames)."""
        dropped = min(self._skip, len(frames))
        self._skip -= dropped
        kept = np.concatenate([self._kept, frames[dropped:].T], axis=1)
        available = kept.shape[1]
        count = max(0, (available - self.frames) // self.hop + 1)
        self._skip += max(0, count * self.hop - available)
        self._kept = kept[:, count * self.hop :].copy()
        starts = range(0, count * self.hop, self.hop)
        return [np.ascontiguousarray(kept[:, start : start + self.frames]) for start in starts]

    def reset(self) -> None:
        """Forget all frames, as after a gap."""
        self._kept, self._skip = self._empty, 0
