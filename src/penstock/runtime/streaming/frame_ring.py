"""A ring of samples or frames, in which overlapping windows are found."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class FrameRing:
    """Keep what the next windows of a stream need.

    Args:
        length: of a window, at least 1.
        hop: from one window to the next, at least 1.
        shape: of one item of the stream.
    """

    def __init__(self, length: int, hop: int, shape: tuple[int, ...] = ()):
        self._length, self._hop = length, hop
        self._kept = np.empty((0, *shape), np.float32)
        self._skip = 0  # items to skip, where hop is larger than a window

    def push(self, items: Floats) -> tuple[Floats, int]:
        """Add items; return all that are kept, and the number of windows in them: window i starts at ``i * hop``."""
        dropped = min(self._skip, len(items))
        self._skip -= dropped
        kept = np.concatenate([self._kept, items[dropped:]])
        count = max(0, (len(kept) - self._length) // self._hop + 1)
        self._skip += max(0, count * self._hop - len(kept))
        self._kept = kept[count * self._hop :].copy()  # a view would keep the whole array alive
        return kept, count
