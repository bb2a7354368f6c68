"""Windows of frames: what the network sees, one every hop."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError

Floats = npt.NDArray[np.float32]


class FrameRing:
    """Keeps the last frames, and gives a window each time a hop of new ones is there.

    Args:
        frames: of a window.
        hop: frames from one window to the next.
        values: numbers of a frame.
    """

    def __init__(self, frames: int, hop: int, values: int):
        if frames < 1 or hop < 1:
            raise DataError(f"windows of {frames} frames every {hop} came: both are 1 or more.")
        self.frames, self.hop = frames, hop
        self._nothing = np.empty((values, 0), np.float32)
        self._kept = self._nothing
        self._skip = 0  # frames that no window needs, where windows are further apart than they are long

    def push(self, frames: Floats) -> list[Floats]:
        """Take more frames (frames, values); return the windows that they complete, each (values, frames)."""
        dropped = min(self._skip, len(frames))
        self._skip -= dropped
        kept = np.concatenate([self._kept, frames[dropped:].T], axis=1)
        there = kept.shape[1]
        count = max(0, (there - self.frames) // self.hop + 1)
        self._skip += max(0, count * self.hop - there)
        self._kept = kept[:, count * self.hop :].copy()
        starts = range(0, count * self.hop, self.hop)
        return [np.ascontiguousarray(kept[:, start : start + self.frames]) for start in starts]

    def reset(self) -> None:
        """Begin anew, as behind a gap."""
        self._kept, self._skip = self._nothing, 0
