"""Check the samples of a stream before features are computed.

Missing samples and samples that are not finite are a **gap**: the guard yields the pieces before and after it, and
everything downstream starts afresh after it. Loud and clipped sound is kept, limited to full scale and counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.errors import ShapeError
from penstock.runtime.streaming.features import FULL_SCALE

# Audio samples beyond this are invalid: no microphone or mix overshoots full scale by that much. A single one is a gap;
# a stream that begins with many has the wrong scale.
MAX_AUDIO = 16.0
SCALE_SAMPLES = 16_000  # non-zero ones at the start whose scale is checked; a tenth may be beyond `MAX_AUDIO`
SAFE_PEAK = 0.99  # a block whose peak is at most this needs no further checks

_STEP = np.float32(1 / FULL_SCALE)  # of int16, exactly

Floats = npt.NDArray[np.float32]


class Piece(NamedTuple):
    """Samples without a gap."""

    start: int  # index of the first sample in the stream, gaps included
    samples: Floats  # (samples,) between -1 and 1 for audio; (samples, axes), unchanged, for a sensor


@dataclass
class InputQuality:
    """Quality of a stream's input so far, in samples."""

    valid: int = 0  # samples that were processed
    lost: int = 0  # samples that were missing
    invalid: int = 0  # samples that were NaN, infinite, or far beyond full scale
    gaps: int = 0  # number of gaps, from lost and invalid samples
    clipped: int = 0  # samples at or beyond full scale


class InputGuard:
    """Split the blocks of a stream into pieces without gaps.

    Args:
        axes: number of axes of a sensor, whose values have any scale; None for audio.
    """

    def __init__(self, axes: int | None = None):
        self.axes = axes
        self.input_quality = InputQuality()
        self._position = 0
        self._in_gap = False
        self._unchecked = SCALE_SAMPLES  # samples whose scale is still to be checked
        self._too_large = 0  # among those checked

    def push(self, samples: npt.NDArray[Any], *, lost: int = 0) -> Iterator[Piece]:
        """Add a block; yield its pieces.

        Args:
            samples: (samples,), int16, or floats between -1 and 1; (samples, axes) for a sensor.
            lost: number of samples missing before the block.

        Raises:
            ShapeError: when shape or dtype differ, or audio has the wrong scale.
        """
        self._check(samples, lost)
        if lost:
            self._gap(lost)
            self.input_quality.lost += lost
        values = _floats(samples) if self.axes or samples.dtype != np.int16 else samples * _STEP
        if self.axes is None and len(values) and float(np.abs(values).max()) <= SAFE_PEAK:  # false for NaN as well
            if self._unchecked:
                self._check_scale(values)
            yield self._piece(values)
            return
        finite = np.asarray(np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
        if self.axes is None:
            values, finite = self._clip(values, finite)
        for first, last in _runs(finite):
            if finite[first]:
                yield self._piece(values[first:last])
            else:
                self._gap(last - first)
                self.input_quality.invalid += last - first

    def _piece(self, values: Floats) -> Piece:
        piece = Piece(self._position, values)
        self._position += len(values)
        self.input_quality.valid += len(values)
        self._in_gap = False
        return piece

    def _gap(self, samples: int) -> None:
        self._position += samples
        self.input_quality.gaps += not self._in_gap
        self._in_gap = True

    def _clip(self, values: Floats, finite: npt.NDArray[np.bool_]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the samples limited to full scale, and which of them are valid."""
        magnitude = np.abs(values, where=finite, out=np.zeros_like(values))
        self._check_scale(magnitude)
        finite = finite & (magnitude <= MAX_AUDIO)
        self.input_quality.clipped += int((magnitude[finite] >= (FULL_SCALE - 1) / FULL_SCALE).sum())
        return np.clip(values, -1, 1), finite

    def _check_scale(self, magnitude: Floats) -> None:
        """Raise if the stream begins with the wrong scale, however it is split into blocks."""
        checked = magnitude[np.flatnonzero(magnitude)[: self._unchecked]]
        self._unchecked -= len(checked)
        self._too_large += int((checked > MAX_AUDIO).sum())
        if self._too_large > SCALE_SAMPLES // 10:
            raise ShapeError(
                f"float audio must be between -1 and 1, got samples up to {float(checked.max(initial=0)):g}. Divide "
                f"int16 values by {FULL_SCALE}."
            )

    def _check(self, samples: npt.NDArray[Any], lost: int) -> None:
        expected = "(samples,)" if self.axes is None else f"(samples, {self.axes})"
        if not isinstance(samples, np.ndarray) or samples.dtype not in (np.int16, np.float32, np.float64):
            found = samples.dtype if isinstance(samples, np.ndarray) else type(samples).__name__
            raise ShapeError(f"expected an array {expected} of int16 or floats, got {found}")
        if samples.ndim != (1 if self.axes is None else 2) or (self.axes and samples.shape[1] != self.axes):
            raise ShapeError(f"expected samples {expected}, got {samples.shape}")
        if lost < 0:
            raise ShapeError(f"lost must be at least 0, got {lost}")


def _floats(samples: npt.NDArray[Any]) -> Floats:
    """Convert to float32; values out of range become infinite."""
    with np.errstate(over="ignore"):
        return samples.astype(np.float32)


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the runs of equal flags as (start, stop).

    >>> _runs(np.array([True, True, False]))
    [(0, 2), (2, 3)]
    """
    if not len(flags):
        return []
    edges = [0, *(np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist(), len(flags)]
    return list(itertools.pairwise(edges))
