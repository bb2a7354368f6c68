"""The header of a WAV file, and where it lies.

A writer that streams does not know how long the sound will be. It leaves 0, or as much as fits, where the size of the
samples belongs, and comes back to put it right, if it can and does not crash before. So such a size promises nothing,
and the samples go on to the end of the file. Any other size is a promise. Where the sizes of a sample contradict each
other, nobody knows what the samples are, and the file is refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.errors import DataError

_PLAIN = (0x0001, 0x0003, 0xFFFE)  # PCM, floats, and the longer header of either
_MOST_CHUNKS = 1000  # a file with more of them before its samples is no recording


@dataclass(frozen=True)
class Data:
    """The samples of a WAV file, in bytes.

    Attributes:
        start: where they begin.
        promised: how many bytes the header says they have.
        there: how many bytes there are up to the end of the file, whatever they are.
        unexplained: how many bytes follow that are no chunk of a WAV file.
        endian: "LITTLE" or "BIG".
    """

    start: int
    promised: int
    there: int
    unexplained: int
    endian: str

    @property
    def endless(self) -> bool:
        """Whether the size is one that a writer left who did not know it."""
        left = self.promised == 0 or 0x7FFF0000 <= self.promised <= 0x80000000 or self.promised >= 0xFFFF0000
        return left and (self.promised > self.there or self.unexplained > 0)


def find_data(path: Path) -> Data | None:
    """Find the samples of a WAV file; None for any other file, and for one whose chunks do not lead to them.

    Raises:
        DataError: when the header contradicts itself: nobody knows then what its samples are.
    """
    with path.open("rb") as file:
        kind, _, form = struct.unpack("<4sI4s", file.read(12).ljust(12))
        if kind not in (b"RIFF", b"RIFX") or form != b"WAVE":
            return None
        order, length, start = "<" if kind == b"RIFF" else ">", path.stat().st_size, 12
        for _ in range(_MOST_CHUNKS):
            chunk = _chunk(file, start, order)
            if chunk is None:
                return None
            name, size = chunk
            end = start + 8 + size + size % 2
            if name == b"fmt ":
                _check_format(path, file.read(16), order)
            if name == b"data":
                rest = 0 if _is_chunk(_chunk(file, end, order), length - end) else max(0, length - end)
                return Data(start + 8, size, length - start - 8, rest, "LITTLE" if order == "<" else "BIG")
            start = end
    return None


def _check_format(path: Path, content: bytes, order: str) -> None:
    """Refuse plain samples whose sizes do not agree; 0 stands for a writer that does not know."""
    if len(content) < 16:
        return
    kind, channels, rate, bytes_a_second, frame, bits = struct.unpack(f"{order}HHIIHH", content)
    if kind not in _PLAIN or not (channels and rate and bits and frame):
        return
    widths = {-(-bits // 8)} | ({4} if bits in (20, 24) else set())  # 24 bits may lie in four bytes
    if frame not in {channels * width for width in widths}:
        raise DataError(
            f"{path} contradicts itself: its header says {bits} bits and {channels} channel(s), and {frame} bytes "
            "for a sample of all channels. One of them is wrong: write its header anew, or give its samples as raw "
            "sound."
        )
    if bytes_a_second not in (0, rate * frame):
        raise DataError(
            f"{path} contradicts itself: its header says {rate} Hz with {frame} bytes a sample, and {bytes_a_second} "
            "bytes a second. One of them is wrong: write its header anew, or give the samples as raw sound."
        )


def _chunk(file: BinaryIO, start: int, order: str) -> tuple[bytes, int] | None:
    """Return the name and the size of the chunk that begins there."""
    file.seek(start)
    head = file.read(8)
    return struct.unpack(f"{order}4sI", head) if len(head) == 8 else None


def _is_chunk(chunk: tuple[bytes, int] | None, length: int) -> bool:
    """Say whether it can be one: a name that can be read, and room for it in the bytes that are left."""
    return chunk is not None and all(32 <= letter < 127 for letter in chunk[0]) and chunk[1] + 8 <= length
