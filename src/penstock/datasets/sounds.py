"""Sound files: read clips from a folder or from inside a zip, fit them to a length, and share noise out.

A clip is mono, 16 kHz, 16 bits, in wav or flac. Anything else is refused with its name: a loader that quietly
resamples or mixes channels gives features that the device never sees.
"""

import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.datasets.disk import read_bytes, reading, stamp
from penstock.errors import DataError, MissingExtraError

RATE_HZ = 16_000

SUFFIXES = (".wav", ".flac")

Samples: TypeAlias = npt.NDArray[np.int16]

NOISE_SHARES = {"train": (0.0, 0.6), "validation": (0.6, 0.8), "test": (0.8, 1.0)}
"""Which stretch of each noise file is for which part, as shares of its time."""


class AudioStore(Protocol):
    """A place with sound files."""

    @property
    def stamps(self) -> Mapping[str, str]:
        """The name of each sound file, and a text that changes when the file does."""

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""


@dataclass(frozen=True)
class Folder:
    """The sound files in the folders of a folder; names are ``folder/file.wav``."""

    path: Path
    stamps: Mapping[str, str]

    @classmethod
    def open(cls, path: Path) -> "Folder":
        """List the files; none is read yet."""
        with reading(path):
            files = [file for inner in sorted(path.iterdir()) if inner.is_dir() for file in sorted(inner.iterdir())]
        sounds = (file for file in files if file.suffix in SUFFIXES)
        return cls(path, {f"{file.parent.name}/{file.name}": stamp(file) for file in sounds})

    def read(self, name: str) -> bytes:
        return read_bytes(self.path / name)


class Archive:
    """The sound files inside a zip, which stays open until ``with`` ends; names are those of the zip."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{path} is not a whole zip file ({error}): fetch it again.") from error
        self.stamps: Mapping[str, str] = {
            one.filename: f"{one.file_size} {one.CRC:08x}"
            for one in self._zip.infolist()
            if one.filename.endswith(SUFFIXES)
        }

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._zip.close()

    def read(self, name: str) -> bytes:
        try:
            return self._zip.read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:  # RuntimeError: encrypted
            raise DataError(f"{name} in {self.path} is damaged ({error}): fetch the zip again.") from error


def read_clip(file: str | Path, length: int | None = None) -> Samples:
    """Read a wav or flac file: (samples,), int16; padded or cut to ``length`` where that is given."""
    samples = decode(read_bytes(Path(file)), str(file))
    return samples if length is None else fit(samples, length)


def decode(content: bytes, name: str) -> Samples:
    """Decode the bytes of a wav or flac file.

    Args:
        content: the whole file.
        name: what to call it in an error.

    Returns:
        (samples,), at 16 kHz.

    Raises:
        DataError: when the file is empty, damaged, or not mono with 16 kHz and 16 bits.
        MissingExtraError: when soundfile is not installed.
    """
    soundfile = _soundfile()
    if not content:
        raise DataError(f"{name} is empty: fetch it again or delete it.")
    if content[:4] == b"RIFF" and int.from_bytes(content[4:8], "little") + 8 > len(content):
        raise DataError(f"{name} is cut short, its header promises more: fetch it again or delete it.")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            _check_format(file, name)
            samples: Samples = file.read(dtype="int16")
    except soundfile.LibsndfileError as error:
        reason = error.error_string.removeprefix("Error : ")
        raise DataError(
            f"{name} is no wav or flac file, or damaged ({reason}): fetch it again or delete it."
        ) from error
    if not len(samples):
        raise DataError(f"{name} has a header and no samples: fetch it again or delete it.")
    return samples


def fit(samples: Samples, length: int) -> Samples:
    """Return so many samples: zeros after a shorter clip, the beginning of a longer one.

    >>> fit(np.array([1, 2], np.int16), 3).tolist(), fit(np.array([1, 2], np.int16), 1).tolist()
    ([1, 2, 0], [1])
    """
    return np.pad(samples[:length], (0, max(0, length - len(samples))))


def middle(samples: Samples, length: int) -> Samples:
    """Return the middle of a longer clip, so many samples of it; a shorter one as it is.

    >>> middle(np.arange(5, dtype=np.int16), 2).tolist(), middle(np.arange(5, dtype=np.int16), 9).tolist()
    ([1, 2], [0, 1, 2, 3, 4])
    """
    start = max(0, (len(samples) - length) // 2)
    return samples[start : start + length]


def noise_span(samples: int, part: str, length: int) -> range:
    """Return the stretch of a noise file that a part may use; no two parts share a sample.

    The stretch begins and ends at whole windows of ``length``, and may be empty for a short file.

    >>> [noise_span(10, part, 2) for part in NOISE_SHARES]
    [range(0, 6), range(6, 8), range(8, 10)]
    """
    windows = samples // length
    first, last = (round(share * windows) for share in NOISE_SHARES[part])
    return range(first * length, last * length)


def joined(shelves: Iterable[AudioStore]) -> dict[str, AudioStore]:
    """Say where each sound is, over several shelves.

    Raises:
        DataError: when a name is on two of them.
    """
    where: dict[str, AudioStore] = {}
    for shelf in shelves:
        for name in shelf.stamps:
            if name in where:
                raise DataError(f"{name} is there twice: it must be in one of the archives only.")
            where[name] = shelf
    return where


def _check_format(file: Any, name: str) -> None:
    if file.samplerate != RATE_HZ:
        raise DataError(f"{name} has {file.samplerate} Hz, and {RATE_HZ} Hz are wanted: resample it first.")
    if file.channels != 1:
        raise DataError(f"{name} has {file.channels} channels, and one is wanted: choose or mix them first.")
    if file.subtype != "PCM_16":
        raise DataError(f"{name} holds {file.subtype} samples, and PCM_16 is wanted: convert it first.")


def _soundfile() -> Any:
    try:
        import soundfile  # type: ignore[import-untyped]
    except (ImportError, OSError) as error:  # OSError: the package is there and its library is not
        raise MissingExtraError(
            f"reading sound needs 'soundfile', which is not installed: pip install 'penstock[audio]' ({error})."
        ) from error
    return soundfile
