"""Blocks of sound: mix them to mono, and resample them.

The resampler is soxr's streaming one: the result does not depend on the block size. It delays the sound by the length
of its filter, 40 to 120 ms at usual rates, and one NaN would spoil that much sound. So invalid samples are replaced by
zero, and only the output samples at their positions become NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError, require

BLOCK = 1600  # samples per block by default: 100 ms at 16 kHz
MIN_HZ, MAX_HZ = 1_000, 768_000
MAX_CHANNELS = 64
MAX_SAMPLE = 2.0**20  # louder samples are invalid: in float32, rounding errors would drown everything near them

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive samples of a stream."""

    samples: Floats  # (samples,) mono, unchanged: usually between -1 and 1, but a file of floats may have any value
    lost: int = 0  # number of samples known to be missing before these


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


def resampled(blocks: Iterable[Block], from_hz: int, to_hz: int, max_samples: int) -> Iterator[Block]:
    """Resample blocks, and split them into blocks of at most ``max_samples`` samples.

    Raises:
        DataError: the error that ends ``blocks``, after all samples before it.
    """
    if from_hz == to_hz:
        for block in blocks:
            yield from _split(block, max_samples)
        return
    resampler = _Resampler(from_hz, to_hz)
    try:
        for block in blocks:
            if block.lost:
                yield from _split(resampler.skip(block.lost), max_samples)
            yield from _split(resampler.push(block.samples), max_samples)
    except DataError:
        yield from _split(resampler.flush(), max_samples)
        raise
    yield from _split(resampler.flush(), max_samples)


def check_request(rate_hz: int, block: int) -> None:
    """Raise a DataError if the requested sample rate or block size is out of range."""
    if not MIN_HZ <= rate_hz <= MAX_HZ:
        raise DataError(f"the sample rate must be {MIN_HZ} to {MAX_HZ} Hz, got {rate_hz}")
    if block < 1:
        raise DataError(f"the block size must be at least 1 sample, got {block}")


def check_source(rate_hz: int, channels: int, name: str) -> None:
    """Raise a DataError if the sample rate or number of channels of a source is out of range."""
    if not MIN_HZ <= rate_hz <= MAX_HZ:
        raise DataError(f"{name}: the sample rate must be {MIN_HZ} to {MAX_HZ} Hz, got {rate_hz}. Correct it.")
    if not 1 <= channels <= MAX_CHANNELS:
        raise DataError(f"{name}: expected 1 to {MAX_CHANNELS} channels, got {channels}. Correct it, or choose some.")


def _split(block: Block, max_samples: int) -> Iterator[Block]:
    for start in range(0, len(block.samples), max_samples):
        yield Block(block.samples[start : start + max_samples], 0 if start else block.lost)


class _Resampler:
    """Resamples a stream. Positions are counted in samples from its start, lost ones included."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self._from, self._to = from_hz, to_hz
        self._soxr = require("soxr", extra="listen").ResampleStream(from_hz, to_hz, 1, dtype="float32")
        self._position_in, self._position_out = 0, 0
        self._start_in, self._start_out = 0, 0  # of the sound after the last gap
        self._lost = 0  # before the next output
        self._invalid: list[tuple[int, int]] = []  # output ranges, counted from the last gap

    def push(self, samples: Floats, *, last: bool = False) -> Block:
        """Add samples; return the output that is complete."""
        valid = np.abs(samples) <= MAX_SAMPLE  # false for NaN
        if not valid.all():
            self._note_invalid(~valid)
            samples = np.where(valid, samples, np.float32(0))
        self._position_in += len(samples)
        out = self._soxr.resample_chunk(samples, last=last)
        start = self._position_out - self._start_out
        for first, stop in self._invalid:
            out[max(0, first - start) : max(0, stop - start)] = np.nan
        self._invalid = [(first, stop) for first, stop in self._invalid if stop > start + len(out)]
        self._position_out += len(out)
        lost = self._lost if len(out) else 0
        self._lost -= lost
        return Block(out, lost)

    def flush(self) -> Block:
        """Return the output that the filter has delayed."""
        return self.push(np.empty(0, np.float32), last=True)

    def skip(self, lost: int) -> Block:
        """Flush, and start again after ``lost`` missing samples."""
        rest = self.flush()
        self._soxr.clear()
        self._invalid.clear()
        self._start_in = self._position_in = self._position_in + lost
        position = max(round(self._position_in * self._to / self._from), self._position_out + 1)  # at least 1 is lost
        self._lost += position - self._position_out
        self._start_out = self._position_out = position
        return rest

    def _note_invalid(self, invalid: npt.NDArray[np.bool_]) -> None:
        """Note which output has no valid input: within half an input sample of invalid ones, and its neighbours."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], invalid, [False]]).astype(np.int8)))
        for first, stop in edges.reshape(-1, 2).tolist():
            first, stop = (2 * (index + self._position_in - self._start_in) - 1 for index in (first, stop))
            begin = max(0, first * self._to // (2 * self._from))
            self._invalid.append((begin, -(-stop * self._to // (2 * self._from)) + 1))
