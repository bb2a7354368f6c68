"""Resize 8-bit pictures: bilinear with antialiasing, the same to the last bit on every machine.

The filter is that of Pillow's ``Image.resize(..., BILINEAR, box=box)``: a triangle as wide as two pixels of the result,
rows first, then columns. Weights are multiples of 2⁻¹⁶, so a sum of weighted pixels is exact in float32, whatever the
order in which a machine adds (docs/decisions/0022-pictures.md).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Pixels: TypeAlias = npt.NDArray[np.uint8]
Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom, in pixels

UNIT = 1 << 16  # one, in units of a weight; 255 times it still fits into float32


def resize(image: Pixels, height: int, width: int, box: Box) -> Pixels:
    """Resize the part of a picture inside ``box``: (rows, columns, channels) -> (height, width, channels)."""
    left, top, right, bottom = box
    rows = _resample(image, height, top, bottom)
    return _resample(rows.transpose(1, 0, 2), width, left, right).transpose(1, 0, 2)


def _resample(lines: Pixels, count: int, low: float, high: float) -> Pixels:
    """Return ``count`` lines between ``low`` and ``high`` on the first axis."""
    flat = np.ascontiguousarray(lines).reshape(len(lines), -1)
    out = np.empty((count, flat.shape[1]), np.uint8)
    for line, (start, weights) in zip(out, _filters(len(lines), count, low, high), strict=True):
        line[:] = weights @ flat[start : start + len(weights)].astype(np.float32) + np.float32(0.5)  # rounded
    return out.reshape(count, *lines.shape[1:])


@lru_cache(maxsize=64)
def _filters(size: int, count: int, low: float, high: float) -> list[tuple[int, npt.NDArray[np.float32]]]:
    """Return the first line that each line of the result reads, and the weights from there on; they sum to 1."""
    step = (high - low) / count
    reach = max(step, 1.0)
    centres = low + (np.arange(count) + 0.5) * step
    taps = min(size, int(2 * reach) + 2)
    starts = np.clip(np.floor(centres - reach).astype(int), 0, size - taps)
    lines = starts[:, None] + np.arange(taps) + 0.5
    sums = np.cumsum(np.maximum(0, reach - np.abs(lines - centres[:, None])), axis=1)
    edges = np.floor(sums / sums[:, -1:] * UNIT + 0.5)  # sums are rounded, not weights: they end at one
    weights = (np.diff(edges, prepend=0) / UNIT).astype(np.float32)
    return list(zip(starts.tolist(), weights, strict=True))
