"""The ear: what a microphone, a file or a pipe gives, made fit to be judged.

Sound that is not there cannot be heard, and what stands in its place must not be taken for sound. So missing samples
and samples that are no numbers are a **gap**: the ear gives the pieces before and behind it, and whoever listens
starts anew behind it. Loud and clipped sound is sound: it is limited to full scale, counted, and heard.
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

FOREIGN = 16.0
"""Floats beyond this are no sound: no microphone or mixture overshoots full scale so far. One of them is a fault, and a
gap; a stream that begins with many is on another scale."""

SCALE_SAMPLES = 16_000
"""By the first so many samples that are not 0 the scale of a stream is judged; a tenth of them may be foreign."""

FAR_FROM_FULL = 0.99
"""Up to here nothing is wrong with sound."""

_STEP = np.float32(1 / FULL_SCALE)  # of int16, exactly

Floats = npt.NDArray[np.float32]


class Piece(NamedTuple):
    """Samples without a gap.

    Attributes:
        start: the number of its first sample, counted from the beginning of the stream, with all gaps.
        samples: (samples,) between -1 and 1; of a sensor (samples, axes), as they came.
    """

    start: int
    samples: Floats


@dataclass
class InputQuality:
    """What was wrong with a stream so far, in samples.

    Attributes:
        heard: samples that were fit to be judged.
        lost: samples that never came.
        broken: samples that were NaN or infinite, or far beyond full scale.
        gaps: how many times the sound broke off, for either reason.
        clipped: samples at full scale or beyond it.
    """

    heard: int = 0
    lost: int = 0
    broken: int = 0
    gaps: int = 0
    clipped: int = 0


class InputGuard:
    """Takes blocks of a stream, and gives pieces that can be judged.

    Args:
        axes: of a sensor, whose values have any scale; None for sound.
    """

    def __init__(self, axes: int | None = None):
        self.axes = axes
        self.input_quality = InputQuality()
        self._at = 0
        self._in_gap = False
        self._unsure = SCALE_SAMPLES  # samples that the scale is still judged by
        self._foreign = 0  # of those before

    def hear(self, samples: npt.NDArray[Any], *, lost: int = 0) -> Iterator[Piece]:
        """Give the pieces of a block.

        Args:
            samples: (samples,), int16, or floats between -1 and 1; of a sensor (samples, axes).
            lost: so many samples are known to be missing before the block.

        Raises:
            ShapeError: for another shape or type, or a scale that is not that of sound.
        """
        self._check(samples, lost)
        if lost:
            self._gap(lost)
            self.input_quality.lost += lost
        values = _floats(samples) if self.axes or samples.dtype != np.int16 else samples * _STEP
        if self.axes is None and len(values) and float(np.abs(values).max()) <= FAR_FROM_FULL:  # false for NaN as well
            if self._unsure:
                self._judge_scale(values)
            yield self._piece(values)
            return
        finite = np.asarray(np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
        if self.axes is None:
            values, finite = self._limited(values, finite)
        for first, last in _runs(finite):
            if finite[first]:
                yield self._piece(values[first:last])
            else:
                self._gap(last - first)
                self.input_quality.broken += last - first

    def _piece(self, values: Floats) -> Piece:
        piece = Piece(self._at, values)
        self._at += len(values)
        self.input_quality.heard += len(values)
        self._in_gap = False
        return piece

    def _gap(self, samples: int) -> None:
        self._at += samples
        self.input_quality.gaps += not self._in_gap
        self._in_gap = True

    def _limited(self, values: Floats, finite: npt.NDArray[np.bool_]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the samples within full scale, and which of them are sound."""
        loud = np.abs(values, where=finite, out=np.zeros_like(values))
        self._judge_scale(loud)
        finite = finite & (loud <= FOREIGN)
        self.input_quality.clipped += int((loud[finite] >= (FULL_SCALE - 1) / FULL_SCALE).sum())
        return np.clip(values, -1, 1), finite

    def _judge_scale(self, loud: Floats) -> None:
        """Refuse a stream that begins on another scale, whatever its blocks are."""
        judged = loud[np.flatnonzero(loud)[: self._unsure]]
        self._unsure -= len(judged)
        self._foreign += int((judged > FOREIGN).sum())
        if self._foreign > SCALE_SAMPLES // 10:
            raise ShapeError(
                f"samples up to {float(judged.max(initial=0)):g} came: sound in floats lies between -1 and 1. Divide "
                f"what was int16 by {FULL_SCALE}."
            )

    def _check(self, samples: npt.NDArray[Any], lost: int) -> None:
        wanted = "(samples,)" if self.axes is None else f"(samples, {self.axes})"
        if not isinstance(samples, np.ndarray) or samples.dtype not in (np.int16, np.float32, np.float64):
            came = samples.dtype if isinstance(samples, np.ndarray) else type(samples).__name__
            raise ShapeError(f"a block of {came} came: give an array {wanted}, int16 or floats.")
        if samples.ndim != (1 if self.axes is None else 2) or (self.axes and samples.shape[1] != self.axes):
            raise ShapeError(f"a block of shape {samples.shape} came: give {wanted}.")
        if lost < 0:
            raise ShapeError(f"lost = {lost} came: a block has lost 0 samples or more.")


def _floats(samples: npt.NDArray[Any]) -> Floats:
    """Return them as float32; what that cannot hold is infinite."""
    with np.errstate(over="ignore"):
        return samples.astype(np.float32)


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where equal flags stand together, as first and behind the last.

    >>> _runs(np.array([True, True, False]))
    [(0, 2), (2, 3)]
    """
    if not len(flags):
        return []
    edges = [0, *(np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist(), len(flags)]
    return list(itertools.pairwise(edges))
