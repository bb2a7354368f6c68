"""Sound from a pipe: raw samples of 16 bits, little-endian, as `arecord -t raw` or `sox -t raw -` write them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import BinaryIO

import numpy as np

from penstock.errors import DataError
from penstock.runtime.audio.resampling import BLOCK, Block, Floats, check_given, check_wanted, mono, resampled
from penstock.runtime.streaming.features import FULL_SCALE

_MOST = 1 << 16  # bytes at a time

_HEADERS = {b"RIFF": "WAV", b"RF64": "WAV", b"fLaC": "FLAC", b"OggS": "Ogg", b"FORM": "AIFF", b"caff": "CAF"}


def pipe(
    file: BinaryIO, rate_hz: int, given_rate_hz: int, channels: int = 1, block: int = BLOCK
) -> Generator[Block, None, None]:
    """Read raw samples as they come: mixed to mono, resampled, in constant memory.

    What has come is passed on at once, be it a single sample. When nothing comes this waits, for a minute or for ever:
    a sender that has nothing to say is no error, and only the end of the pipe ends the sound. The file is not closed.

    Args:
        file: ``sys.stdin.buffer``, or anything else that bytes can be read from and that waits for them.
        rate_hz: of the samples that are wanted.
        given_rate_hz: of the samples that come.
        channels: that take turns in what comes.
        block: how many samples a block has at most.

    Raises:
        DataError: with the first block, when nothing comes or it begins with the header of a sound file; after the last
            one, when it ends within a sample or the pipe broke.
        MissingExtraError: when the rates differ and soxr is not installed.
    """
    check_wanted(rate_hz, block)
    check_given(given_rate_hz, channels, "the raw sound")
    yield from resampled(_read(file, channels), given_rate_hz, rate_hz, block)


def _read(file: BinaryIO, channels: int) -> Iterator[Block]:
    width, rest, heard = 2 * channels, b"", 0
    for chunk in _chunks(file):
        rest += chunk
        whole = len(rest) - len(rest) % width
        if whole and (heard or len(rest) >= 4):  # the first four bytes may be those of a header
            if not heard:
                _refuse_header(rest)
            yield Block(_decoded(rest[:whole], channels))
            rest, heard = rest[whole:], heard + whole
    if not heard and not rest:
        raise DataError("no sound came, the pipe ended at once: does what should write to it run, and to its output?")
    if len(rest) >= width:  # all that came is shorter than a header
        yield Block(_decoded(rest[: len(rest) - len(rest) % width], channels))
    if len(rest) % width:
        raise DataError(
            f"the raw sound ends within a sample, {len(rest) % width} of {width} bytes came of the last one: 16 bits "
            f"and {channels} channels are wanted. All before it was given."
        )


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Give what is there as soon as it is: read1 does not wait until its buffer is full, as read does."""
    take = getattr(file, "read1", file.read)
    while True:
        try:
            chunk = take(_MOST)
        except OSError as error:
            raise DataError(f"the pipe broke ({error.strerror or error}): all that came before was given.") from error
        if chunk is None:
            raise DataError("the pipe does not wait for its sender: give one that blocks.")
        if not chunk:
            return
        yield chunk


def _decoded(content: bytes, channels: int) -> Floats:
    samples = np.frombuffer(content, "<i2").astype(np.float32) * np.float32(1 / FULL_SCALE)
    return mono(samples.reshape(-1, channels))


def _refuse_header(content: bytes) -> None:
    name = _HEADERS.get(content[:4])
    if name is not None:
        raise DataError(
            f"what comes begins with {content[:4].decode()}, the header of a {name} file: raw samples of 16 bits are "
            "wanted. Give the file itself by its path, or strip the header (sox in.wav -t raw -)."
        )
