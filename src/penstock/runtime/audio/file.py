"""Read sound files: every format of libsndfile, at any sample rate, with any number of channels, of any length.

As much of a broken file as possible is read, and the error follows the last block:

- the header declares more samples than the file has: those in the file, then an error;
- the header declares fewer: as many as declared, then an error;
- the header has no length (0, or the largest possible): all samples up to the end of the file, no error;
- the header contradicts itself, such as 24 bits in two bytes: an error, because nobody knows what the samples are;
- a FLAC file is damaged: the samples before and after the damage, the missing ones in `Block.lost`, then an error.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import DataError, require
from penstock.runtime.audio.resampling import BLOCK, Block, Floats, check_request, check_source, mono, resampled
from penstock.runtime.audio.riff import DataChunk, find_data

_UNKNOWN = 1 << 62  # libsndfile reports even more frames for a FLAC file without a length
_STEP = 1024  # frames to skip at damage; doubled after each failed attempt


def recording(path: str | Path, rate_hz: int, block: int = BLOCK) -> Generator[Block, None, None]:
    """Read a sound file: mixed to mono, resampled, in constant memory.

    Args:
        path: a wav, flac, ogg, mp3 or aiff file.
        rate_hz: sample rate of the blocks.
        block: largest number of samples in a block.

    Raises:
        DataError: with the first block, if the file is not a sound file or has no samples; after the last block, if it
            is damaged or has another length than its header declares.
        MissingExtraError: if soundfile, or soxr for another sample rate, is not installed.
    """
    path = Path(path)
    check_request(rate_hz, block)
    with closing(_Reader(path, _check_file(path))) as reader:
        check_source(reader.rate_hz, reader.channels, str(path))
        frames = max(1, round(block * reader.rate_hz / rate_hz))
        yield from resampled(reader.blocks(frames), reader.rate_hz, rate_hz, block)


def _check_file(path: Path) -> DataChunk | None:
    """Refuse what is not a sound file; return where the samples of a WAV file are."""
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise DataError(f"expected a sound file, got the folder {path}.")
        if not stat.S_ISREG(info.st_mode):
            raise DataError(f"{path} is not a regular file: give a sound file, or raw samples on standard input.")
        if not info.st_size:
            raise DataError(f"{path} is empty: download or record it again.")
        if path.suffix.lower() == ".raw":
            raise DataError(f"{path} has no header with its sample rate: give it on standard input, with --rate.")
        return find_data(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}. Give the path of a sound file.") from error


class _Reader:
    """Reads a sound file from start to end, skipping damage."""

    def __init__(self, path: Path, data: DataChunk | None) -> None:
        self._soundfile, self._path, self._data = require("soundfile", extra="listen"), path, data
        self._samples: _FileFrom | None = None  # the samples alone, if the header has no length
        self._file = self._open(path)
        self.rate_hz, self.channels, self._declared = self._file.samplerate, self._file.channels, self._file.frames
        if data is not None and not data.has_unknown_size:
            self._declared = max(self._declared, -(-self._declared * data.declared // max(1, data.available)))
        elif data is not None and self._file.subtype in self._soundfile.available_subtypes("RAW"):
            kind = {"subtype": self._file.subtype, "samplerate": self.rate_hz, "channels": self.channels}
            self._file.close()
            self._samples = _FileFrom(path, data.start)
            self._file = self._open(self._samples, format="RAW", endian=data.endian, **kind)
            self._declared = self._file.frames

    def close(self) -> None:
        self._file.close()
        if self._samples is not None:
            self._samples.close()

    def blocks(self, frames: int) -> Iterator[Block]:
        """Read all that can be read, at most ``frames`` frames at a time.

        Raises:
            DataError: at the end, if something is missing.
        """
        buffer = np.empty((frames, self.channels), np.float32)
        position, lost, total, damaged_at = 0, 0, 0, None
        while True:
            count, intact = self._read(buffer, position)
            if count:
                yield Block(mono(buffer[:count]), lost)
                position, lost, total = position + count, 0, total + count
            if not intact:
                damaged_at = position if damaged_at is None else damaged_at
                after = self._skip_damage(position)
                if after is None:
                    break
                position, lost = after, lost + after - position
            elif not count:
                break
        self._check_length(total, damaged_at)

    def _read(self, buffer: Floats, position: int) -> tuple[int, bool]:
        """Return the number of frames read, and whether no damage follows them."""
        try:
            return len(self._file.read(out=buffer)), True
        except self._soundfile.LibsndfileError:
            return max(0, self._file.tell() - position), False  # frames decoded before the damage

    def _skip_damage(self, position: int) -> int | None:
        """Seek past damage and return the new position; None if nothing more can be read."""
        step = _STEP
        while position + step < self._declared:
            position, step = position + step, 2 * step
            self._file.close()
            self._file = self._open(self._path)  # after an error libsndfile decodes no more FLAC from the old one
            try:
                self._file.seek(position)
                return position
            except self._soundfile.LibsndfileError:
                continue
        return None

    def _open(self, source: Path | _FileFrom, **kind: Any) -> Any:
        try:
            file = self._soundfile.SoundFile(source, **kind)
        except self._soundfile.LibsndfileError as error:
            reason = error.error_string.removeprefix("Error : ")
            raise DataError(
                f"{self._path} is not a sound file, or damaged ({reason}): give a wav, flac, ogg, mp3 or aiff file."
            ) from error
        # soundfile seeks after each read of a seekable file, which is slow, inexact in MP3, and fails at damage.
        file.seekable = lambda: False
        return file

    def _check_length(self, total: int, damaged_at: int | None) -> None:
        """Raise if the file is damaged, or has another length than its header declares."""
        declared, read = (f"{n} samples ({n / self.rate_hz:.2f} s)" for n in (self._declared, total))
        if damaged_at is not None:
            of = "" if self._declared > _UNKNOWN else f" of {declared}"
            raise DataError(
                f"{self._path} is damaged at {damaged_at / self.rate_hz:.2f} s: read {read}{of}. Download or record it "
                "again."
            )
        if not total:
            raise DataError(f"{self._path} has a header but no samples: download or record it again.")
        if total < self._declared < _UNKNOWN:
            raise DataError(
                f"{self._path} is truncated or damaged: its header declares {declared}, read {read}. Download or "
                "record it again."
            )
        data = self._data  # less than a second after the samples may be padding or a tag
        if data is not None and not data.has_unknown_size and data.trailing * total > data.declared * self.rate_hz:
            raise DataError(
                f"{self._path} is longer than its header declares: read {declared}, but {data.trailing} more bytes "
                "follow that may be sound. Rewrite its header with sox or ffmpeg."
            )


class _FileFrom(io.FileIO):
    """A file that begins at byte ``start`` of another."""

    def __init__(self, path: Path, start: int) -> None:
        super().__init__(path)
        self._start = start
        self.seek(0)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return super().seek(offset + self._start if whence == 0 else offset, whence) - self._start

    def tell(self) -> int:
        return super().tell() - self._start
