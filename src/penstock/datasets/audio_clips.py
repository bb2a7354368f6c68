"""Audio clips: decode wav and flac, pad or trim them, and divide noise recordings among the splits.

A clip is mono, 16 kHz, 16 bits. Anything else is rejected by name: a loader that silently resamples or mixes channels
gives features that the device never sees.
"""

import io
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.datasets.files import read_bytes
from penstock.errors import DataError, require

RATE_HZ = 16_000

SUFFIXES = (".wav", ".flac")

PARTS = ("train", "validation", "test")

Samples: TypeAlias = npt.NDArray[np.int16]

NOISE_SHARES = {"train": (0.0, 0.6), "validation": (0.6, 0.8), "test": (0.8, 1.0)}
"""The stretch of each noise recording that belongs to each split, as shares of its duration."""


def read_clip(file: str | Path) -> Samples:
    """Read a wav or flac file: (samples,), int16."""
    return decode_clip(read_bytes(Path(file)), str(file))


def decode_clip(content: bytes, name: str) -> Samples:
    """Decode the content of a wav or flac file: (samples,); ``name`` is used in errors.

    Raises:
        DataError: if the file is empty, damaged, or not mono, 16 kHz, 16 bits.
        MissingExtraError: if soundfile is not installed.
    """
    soundfile = require("soundfile", extra="audio")
    if not content:
        raise DataError(f"{name} is empty: fetch it again or delete it.")
    if content[:4] == b"RIFF" and int.from_bytes(content[4:8], "little") + 8 > len(content):
        raise DataError(f"{name} is truncated: shorter than stated in its header. Fetch it again or delete it.")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            _check_format(file, name)
            samples: Samples = file.read(dtype="int16")
    except soundfile.LibsndfileError as error:
        reason = error.error_string.removeprefix("Error : ")
        raise DataError(f"{name} is not a valid wav or flac file ({reason}): fetch it again or delete it.") from error
    if not len(samples):
        raise DataError(f"{name} contains no samples: fetch it again or delete it.")
    return samples


def pad_or_trim(samples: Samples, length: int) -> Samples:
    """Append zeros to a shorter clip, keep the beginning of a longer one.

    >>> pad_or_trim(np.array([1, 2], np.int16), 3).tolist(), pad_or_trim(np.array([1, 2], np.int16), 1).tolist()
    ([1, 2, 0], [1])
    """
    return np.pad(samples[:length], (0, max(0, length - len(samples))))


def trim_to_centre(samples: Samples, length: int) -> Samples:
    """Return the ``length`` samples at the centre of a longer clip; a shorter clip unchanged.

    >>> [trim_to_centre(np.arange(5, dtype=np.int16), length).tolist() for length in (2, 9)]
    [[1, 2], [0, 1, 2, 3, 4]]
    """
    start = max(0, (len(samples) - length) // 2)
    return samples[start : start + length]


def noise_span(samples: int, part: str, length: int) -> range:
    """Return the stretch of a noise recording that a split may use; no two splits share a sample.

    It starts and ends at multiples of ``length``, and may be empty for a short recording.

    >>> [noise_span(10, part, 2) for part in NOISE_SHARES]
    [range(0, 6), range(6, 8), range(8, 10)]
    """
    windows = samples // length
    first, last = (round(share * windows) for share in NOISE_SHARES[part])
    return range(first * length, last * length)


def _check_format(file: Any, name: str) -> None:
    if file.samplerate != RATE_HZ:
        raise DataError(f"expected {RATE_HZ} Hz, {name} has {file.samplerate} Hz: resample it first.")
    if file.channels != 1:
        raise DataError(f"expected 1 channel, {name} has {file.channels} channels: select or mix them first.")
    if file.subtype != "PCM_16":
        raise DataError(f"expected PCM_16 samples, {name} has {file.subtype}: convert it first.")
