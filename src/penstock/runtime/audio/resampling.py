"""Blocks of sound: mixed to mono, and resampled as they come.

The resampler is soxr's streaming one: any chunking gives the samples of the whole, and it holds back what its filter
looks ahead, 40 to 120 ms at usual rates. One NaN would spoil as much sound around it. Hence the resampler gets a zero
in the place of what is no sound, and the samples that come out at that place are NaN again, and only they.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError, require

BLOCK = 1600
"""Samples of a block unless told otherwise: 100 ms at 16 kHz."""

SLOWEST_HZ, FASTEST_HZ = 1_000, 768_000
MOST_CHANNELS = 64

LOUDEST = 2.0**20
"""What is louder is no sound to the resampler: the rounding of its float32 would drown all that is near it."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Block:
    """Some samples of a stream.

    Attributes:
        samples: (samples,) mono, as they came: usually between -1 and 1; from a file of floats anything, even NaN.
        lost: how many samples are known to be missing before these.
    """

    samples: Floats
    lost: int = 0


def mono(frames: Floats) -> Floats:
    """Mix channels by their mean, (frames, channels) -> (frames,); a new array.

    >>> mono(np.array([[1, 0], [0.5, 0.5]], np.float32)).tolist()
    [0.5, 0.5]
    """
    total = frames[:, 0].astype(np.float64)  # so that the mean of equal channels is each of them
    with np.errstate(invalid="ignore"):  # +inf and -inf: NaN, as it should be
        for channel in frames.T[1:]:
            total += channel
    return (total / frames.shape[1]).astype(np.float32)


def resampled(blocks: Iterable[Block], from_hz: int, to_hz: int, most: int) -> Iterator[Block]:
    """Bring blocks to another rate, and cut them so that each has at most ``most`` samples.

    Raises:
        DataError: what the blocks end with, after all that came before it.
    """
    if from_hz == to_hz:
        for block in blocks:
            yield from _cut(block, most)
        return
    stretch, ending = _Stretch(from_hz, to_hz), None
    try:
        for block in blocks:
            if block.lost:
                yield from _cut(stretch.skip(block.lost), most)
            yield from _cut(stretch.push(block.samples), most)
    except DataError as error:
        ending = error
    yield from _cut(stretch.end(), most)
    if ending is not None:
        raise ending


def check_wanted(rate_hz: int, block: int) -> None:
    """Refuse a rate or a size of blocks that nobody can want.

    Raises:
        DataError: saying which are possible.
    """
    if not SLOWEST_HZ <= rate_hz <= FASTEST_HZ:
        raise DataError(f"sound at {rate_hz} Hz is asked for: {SLOWEST_HZ} to {FASTEST_HZ} Hz are possible.")
    if block < 1:
        raise DataError(f"blocks of {block} samples are asked for: a block has at least 1.")


def check_given(rate_hz: int, channels: int, name: str) -> None:
    """Refuse a rate or a number of channels that no sound has.

    Raises:
        DataError: naming what has it.
    """
    if not SLOWEST_HZ <= rate_hz <= FASTEST_HZ:
        raise DataError(
            f"{name} has {rate_hz} Hz, and sound has {SLOWEST_HZ} to {FASTEST_HZ} Hz: its header or the rate given for "
            "it is wrong."
        )
    if not 1 <= channels <= MOST_CHANNELS:
        raise DataError(
            f"{name} has {channels} channels, and 1 to {MOST_CHANNELS} can be mixed: its header or the number given "
            "for it is wrong, or choose some of them first."
        )


def _cut(block: Block, most: int) -> Iterator[Block]:
    for start in range(0, len(block.samples), most):
        yield Block(block.samples[start : start + most], 0 if start else block.lost)


class _Stretch:
    """Resamples a stream; places are counted in samples from its beginning, lost ones included."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self._from, self._to = from_hz, to_hz
        self._soxr = require("soxr", extra="listen").ResampleStream(from_hz, to_hz, 1, dtype="float32")
        self._taken, self._given = 0, 0
        self._began_in, self._began_out = 0, 0  # where the sound after the last gap begins
        self._lost = 0  # before what is given next
        self._broken: list[tuple[int, int]] = []  # stretches of output, since the last gap

    def push(self, samples: Floats, *, last: bool = False) -> Block:
        """Return what can be given so far."""
        fine = np.abs(samples) <= LOUDEST  # false for NaN
        if not fine.all():
            self._note(~fine)
            samples = np.where(fine, samples, np.float32(0))
        self._taken += len(samples)
        out = self._soxr.resample_chunk(samples, last=last)
        self._mark(out)
        self._given += len(out)
        lost = self._lost if len(out) else 0
        self._lost -= lost
        return Block(out, lost)

    def end(self) -> Block:
        """Return what is still inside."""
        return self.push(np.empty(0, np.float32), last=True)

    def skip(self, lost: int) -> Block:
        """Return what is still inside; what is pushed next comes so much later, and knows nothing of it."""
        rest = self.end()
        self._soxr.clear()
        self._broken.clear()
        self._began_in = self._taken = self._taken + lost
        place = max(round(self._taken * self._to / self._from), self._given + 1)  # a gap is never lost in rounding
        self._lost += place - self._given
        self._began_out = self._given = place
        return rest

    def _note(self, broken: npt.NDArray[np.bool_]) -> None:
        """Remember where the output has nothing to go by: within half a sample of input, and the neighbours."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], broken, [False]]).astype(np.int8)))
        for first, stop in edges.reshape(-1, 2).tolist():
            first, stop = (2 * (place + self._taken - self._began_in) - 1 for place in (first, stop))
            begin = max(0, first * self._to // (2 * self._from))
            self._broken.append((begin, -(-stop * self._to // (2 * self._from)) + 1))

    def _mark(self, out: Floats) -> None:
        start = self._given - self._began_out
        for first, stop in self._broken:
            out[max(0, first - start) : max(0, stop - start)] = np.nan
        self._broken = [one for one in self._broken if one[1] > start + len(out)]
