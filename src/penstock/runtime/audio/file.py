"""Sound from a file: whatever libsndfile reads, at any rate, with any number of channels, of any length.

What can be read of a broken file is given, and the error comes after it:

- a header that promises more samples than there are: those that are there, then an error;
- a header that promises less than there is: what it promises, then an error;
- a header whose writer did not know the size (0, or as much as fits): all up to the end of the file, no error;
- a header that contradicts itself, such as 24 bits in two bytes: an error, since nobody knows what the samples are;
- damage in the middle of a FLAC file: what is before and behind it, what is missing in `Block.lost`, then an error.
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
from penstock.runtime.audio.resampling import BLOCK, Block, Floats, check_given, check_wanted, mono, resampled
from penstock.runtime.audio.riff import Data, find_data

_UNKNOWN = 1 << 62  # a FLAC file that does not say how long it is has even more frames, says libsndfile
_STEP = 1024  # frames: so far behind damage reading on is tried first, then twice as far, and so on


def recording(path: str | Path, rate_hz: int, block: int = BLOCK) -> Generator[Block, None, None]:
    """Read a sound file: mixed to mono, resampled, in constant memory.

    Args:
        path: wav, flac, ogg, mp3, aiff, ...
        rate_hz: of the samples that are wanted.
        block: how many samples a block has at most.

    Raises:
        DataError: with the first block, when this is no sound file or holds no sound; after the last block, when the
            file holds less or more than it says. All that could be read has been given then.
        MissingExtraError: when soundfile, or soxr for another rate, is not installed.
    """
    path = Path(path)
    check_wanted(rate_hz, block)
    with closing(_Reader(path, _look(path))) as reader:
        check_given(reader.rate_hz, reader.channels, str(path))
        frames = max(1, round(block * reader.rate_hz / rate_hz))
        yield from resampled(reader.blocks(frames), reader.rate_hz, rate_hz, block)


def _look(path: Path) -> Data | None:
    """Find what is no sound file without opening it as one, and the samples of a WAV file."""
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise DataError(f"{path} is a folder: give one sound file.")
        if not stat.S_ISREG(info.st_mode):
            raise DataError(f"{path} is no ordinary file: give a sound file, or raw samples on standard input.")
        if not info.st_size:
            raise DataError(f"{path} is empty: fetch or record it again.")
        if path.suffix.lower() == ".raw":
            raise DataError(f"{path} is raw and does not say its rate: give it on standard input, with its rate.")
        return find_data(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): give the path of a sound file.") from error


class _Reader:
    """A sound file that is read forward, over damage, to its end."""

    def __init__(self, path: Path, data: Data | None) -> None:
        self._soundfile, self._path, self._data = require("soundfile", extra="listen"), path, data
        self._inner: _Inner | None = None  # the samples alone, where the header does not know how many they are
        self._file = self._opened(path)
        self.rate_hz, self.channels, self._promised = self._file.samplerate, self._file.channels, self._file.frames
        if data is not None and not data.endless:
            self._promised = max(self._promised, -(-self._promised * data.promised // max(1, data.there)))
        elif data is not None and self._file.subtype in self._soundfile.available_subtypes("RAW"):
            kind = {"subtype": self._file.subtype, "samplerate": self.rate_hz, "channels": self.channels}
            self._file.close()
            self._inner = _Inner(path, data.start)
            self._file = self._opened(self._inner, format="RAW", endian=data.endian, **kind)
            self._promised = self._file.frames

    def close(self) -> None:
        self._file.close()
        if self._inner is not None:
            self._inner.close()

    def blocks(self, frames: int) -> Iterator[Block]:
        """Read all that can be read, so many frames at a time.

        Raises:
            DataError: at the end, when something was missing.
        """
        room = np.empty((frames, self.channels), np.float32)
        place, lost, heard, damage = 0, 0, 0, None
        while True:
            got, whole = self._read(room, place)
            if got:
                yield Block(mono(room[:got]), lost)
                place, lost, heard = place + got, 0, heard + got
            if not whole:
                damage = place if damage is None else damage
                behind = self._over(place)
                if behind is None:
                    break
                place, lost = behind, lost + behind - place
            elif not got:
                break
        self._complain(heard, damage)

    def _read(self, room: Floats, place: int) -> tuple[int, bool]:
        """Return how many frames came, and whether nothing broke behind them."""
        try:
            return len(self._file.read(out=room)), True
        except self._soundfile.LibsndfileError:
            return max(0, self._file.tell() - place), False  # what was decoded before it broke

    def _over(self, place: int) -> int | None:
        """Go behind damage, and return where; None when nothing can be read any more."""
        step = _STEP
        while place + step < self._promised:
            place, step = place + step, 2 * step
            self._file.close()
            self._file = self._opened(self._path)  # after an error libsndfile decodes no more FLAC from the old one
            try:
                self._file.seek(place)
                return place
            except self._soundfile.LibsndfileError:
                continue
        return None

    def _opened(self, what: Path | _Inner, **kind: Any) -> Any:
        try:
            file = self._soundfile.SoundFile(what, **kind)
        except self._soundfile.LibsndfileError as error:
            raise DataError(
                f"{self._path} is no sound file, or damaged ({error.error_string.removeprefix('Error : ')}): give wav, "
                "flac, ogg, mp3 or aiff."
            ) from error
        # soundfile seeks after each read of a file that can seek, which is slow, inexact in MP3, and fails at damage.
        file.seekable = lambda: False
        return file

    def _complain(self, heard: int, damage: int | None) -> None:
        promised = f"{self._promised} samples ({self._promised / self.rate_hz:.2f} s)"
        came = f"{heard} ({heard / self.rate_hz:.2f} s)"
        if damage is not None:
            of = "" if self._promised > _UNKNOWN else f" of {promised}"
            raise DataError(
                f"{self._path} is damaged at {damage / self.rate_hz:.2f} s: {came}{of} could be read, and were given. "
                "Fetch or record it again."
            )
        if not heard:
            raise DataError(f"{self._path} has a header and no samples: fetch or record it again.")
        if heard < self._promised < _UNKNOWN:
            raise DataError(
                f"{self._path} is cut short or damaged: it promises {promised}, and {came} are there, and were given. "
                "Fetch or record it again."
            )
        data = self._data  # less than a second behind the samples may be padding or a tag
        if data is not None and not data.endless and data.unexplained * heard > data.promised * self.rate_hz:
            raise DataError(
                f"{self._path} is longer than it says: it promises {promised}, which were given, and "
                f"{data.unexplained} bytes follow that may be sound. Have its header written again, by sox or ffmpeg."
            )


class _Inner(io.FileIO):
    """A file from some byte on, as if it began there."""

    def __init__(self, path: Path, start: int) -> None:
        super().__init__(path)
        self._start = start
        self.seek(0)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return super().seek(offset + self._start if whence == 0 else offset, whence) - self._start

    def tell(self) -> int:
        return super().tell() - self._start
