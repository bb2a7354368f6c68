"""Read sound from a pipe: raw 16-bit little-endian samples, as `arecord -t raw` or `sox -t raw -` write them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import BinaryIO

import numpy as np

from penstock.errors import DataError
from penstock.runtime.audio.resampling import BLOCK, Block, Floats, check_request, check_source, mono, resampled
from penstock.runtime.streaming.features import FULL_SCALE

_MAX_READ = 1 << 16  # bytes

_HEADERS = {b"RIFF": "WAV", b"RF64": "WAV", b"fLaC": "FLAC", b"OggS": "Ogg", b"FORM": "AIFF", b"caff": "CAF"}


def pipe(
    file: BinaryIO, rate_hz: int, given_rate_hz: int, channels: int = 1, block: int = BLOCK
) -> Generator[Block, None, None]:
    """Read raw samples as they arrive: mixed to mono, resampled, in constant memory.

    Samples are passed on at once, even a single one. A pause of the sender is no error: only the end of the pipe ends
    the sound. The file is not closed.

    Args:
        file: ``sys.stdin.buffer``, or another blocking binary file.
        rate_hz: sample rate of the blocks.
        given_rate_hz: sample rate of the raw samples.
        channels: number of interleaved channels.
        block: largest number of samples in a block.

    Raises:
        DataError: with the first block, if the pipe is empty or begins with the header of a sound file; after the last
            one, if it ends within a sample or breaks.
        MissingExtraError: if the rates differ and soxr is not installed.
    """
    check_request(rate_hz, block)
    check_source(given_rate_hz, channels, "raw sound")
    yield from resampled(_blocks(file, channels), given_rate_hz, rate_hz, block)


def _blocks(file: BinaryIO, channels: int) -> Iterator[Block]:
    frame_bytes, rest = 2 * channels, b""
    for chunk in _raw_chunks(file):
        rest += chunk
        complete = len(rest) - len(rest) % frame_bytes
        if complete:
            yield Block(_decode(rest[:complete], channels))
            rest = rest[complete:]
    if rest:
        raise DataError(
            f"the raw sound ends within a sample, after {len(rest)} of {frame_bytes} bytes: expected 16 bits and "
            f"{channels} channel(s)."
        )


def _raw_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield what arrives; raise a DataError if that is nothing, or begins with the header of a sound file."""
    chunks, start = _chunks(file), b""
    while len(start) < 4 and (chunk := next(chunks, b"")):
        start += chunk
    if not start:
        raise DataError("the pipe ended without any sound: is the program running that should write to it?")
    if start[:4] in _HEADERS:
        raise DataError(
            f"expected raw 16-bit samples, got {start[:4].decode()}, the header of a {_HEADERS[start[:4]]} file. Give "
            "the path of the file, or remove the header (sox in.wav -t raw -)."
        )
    yield start
    yield from chunks


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    read = getattr(file, "read1", file.read)  # read1 does not wait until its buffer is full
    while True:
        try:
            chunk = read(_MAX_READ)
        except OSError as error:
            raise DataError(f"the pipe broke: {error.strerror or error}.") from error
        if chunk is None:
            raise DataError("the pipe is non-blocking: expected one that waits for its sender.")
        if not chunk:
            return
        yield chunk


def _decode(content: bytes, channels: int) -> Floats:
    samples = np.frombuffer(content, "<i2").astype(np.float32) * np.float32(1 / FULL_SCALE)
    return mono(samples.reshape(-1, channels))
