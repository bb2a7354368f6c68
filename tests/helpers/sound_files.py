"""Sound files made by hand, and what a source of sound yields."""

import io
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from penstock.errors import DataError
from penstock.runtime.audio.resampling import Block

soundfile = pytest.importorskip("soundfile", reason="needs soundfile to write sound files")

RATE = 16_000


def noise(samples: int, seed: int = 0, channels: int = 1) -> np.ndarray:
    """Return int16, (samples, channels)."""
    return (np.random.default_rng(seed).normal(size=(samples, channels)) * 3000).astype("<i2")


def wav(
    samples: np.ndarray, *, rate: int = RATE, channels: int = 1, data: int | None = None, after: bytes = b""
) -> bytes:
    """Write a WAV file of 16 bits by hand, so that its header may say anything."""
    body = samples.tobytes()
    size = len(body) if data is None else data
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, 2 * rate * channels % 2**32, 2 * channels, 16)
    content = b"WAVE" + form + struct.pack("<4sI", b"data", size) + body + after
    return b"RIFF" + struct.pack("<I", len(content)) + content


def flac(samples: np.ndarray, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC")
    return file.getvalue()


def collect(blocks: Iterator[Block]) -> tuple[np.ndarray, list[Block], str]:
    """Return all samples, all blocks, and the text of the error at the end."""
    collected, text = [], ""
    try:
        for block in blocks:
            collected.append(block)
    except DataError as error:
        text = str(error)
    return np.concatenate([block.samples for block in collected] or [np.empty(0, np.float32)]), collected, text


def samples_of(blocks: Iterator[Block]) -> np.ndarray:
    """Return all samples of a source that has no gap and no error."""
    samples, collected, text = collect(blocks)
    assert text == "" and not any(block.lost for block in collected) and samples.dtype == np.float32
    return samples
