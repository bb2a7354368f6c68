"""Find the samples of a WAV file, and check its header.

A program that writes a stream does not know its length. It writes 0 or the largest possible size, and corrects that at
the end if it can and has not crashed. So the samples after such a size extend to the end of the file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.errors import DataError

_PLAIN = (0x0001, 0x0003, 0xFFFE)  # PCM, floats, and the extensible header of either
_MAX_CHUNKS = 1000  # before the samples; a file with more is not a recording


@dataclass(frozen=True)
class DataChunk:
    """Where the samples of a WAV file are, in bytes."""

    start: int  # offset of the first sample
    declared: int  # size of the samples in the header
    available: int  # bytes from ``start`` to the end of the file
    trailing: int  # bytes after the samples that are not a chunk of a WAV file
    endian: str  # "LITTLE" or "BIG"

    @property
    def has_unknown_size(self) -> bool:
        """Whether the declared size is a placeholder."""
        placeholder = self.declared == 0 or 0x7FFF0000 <= self.declared <= 0x80000000 or self.declared >= 0xFFFF0000
        return placeholder and (self.declared > self.available or self.trailing > 0)


def find_data(path: Path) -> DataChunk | None:
    """Find the samples of a WAV file; None for other files, and if the chunks do not lead to samples.

    Raises:
        DataError: if the header contradicts itself, so that nobody knows what the samples are.
    """
    with path.open("rb") as file:
        kind, _, form = struct.unpack("<4sI4s", file.read(12).ljust(12))
        if kind not in (b"RIFF", b"RIFX") or form != b"WAVE":
            return None
        order, length, start = "<" if kind == b"RIFF" else ">", path.stat().st_size, 12
        for _ in range(_MAX_CHUNKS):
            chunk = _read_chunk(file, start, order)
            if chunk is None:
                return None
            name, size = chunk
            end = start + 8 + size + size % 2
            if name == b"fmt ":
                _check_format(path, file.read(16), order)
            if name == b"data":
                trailing = 0 if _is_chunk(_read_chunk(file, end, order), length - end) else max(0, length - end)
                return DataChunk(start + 8, size, length - start - 8, trailing, "LITTLE" if order == "<" else "BIG")
            start = end
    return None


def _check_format(path: Path, content: bytes, order: str) -> None:
    """Check that the sizes of plain samples agree; a size of 0 is unknown."""
    if len(content) < 16:
        return
    kind, channels, rate, bytes_per_second, frame_bytes, bits = struct.unpack(f"{order}HHIIHH", content)
    if kind not in _PLAIN or not (channels and rate and bits and frame_bytes):
        return
    problem = ""
    widths = {-(-bits // 8)} | ({4} if bits in (20, 24) else set())  # 24 bits may be stored in four bytes
    if frame_bytes not in {channels * width for width in widths}:
        problem = f"{bits} bits and {channels} channel(s), but {frame_bytes} bytes per frame"
    elif bytes_per_second not in (0, rate * frame_bytes):
        problem = f"{rate} Hz and {frame_bytes} bytes per frame, but {bytes_per_second} bytes per second"
    if problem:
        raise DataError(
            f"the header of {path} contradicts itself: {problem}. Rewrite it, or give the samples as raw sound."
        )


def _read_chunk(file: BinaryIO, start: int, order: str) -> tuple[bytes, int] | None:
    """Return the name and size of the chunk at an offset."""
    file.seek(start)
    head = file.read(8)
    return struct.unpack(f"{order}4sI", head) if len(head) == 8 else None


def _is_chunk(chunk: tuple[bytes, int] | None, length: int) -> bool:
    """Return whether this may be a chunk: its name is printable, and it fits into the bytes that are left."""
    return chunk is not None and all(32 <= letter < 127 for letter in chunk[0]) and chunk[1] + 8 <= length
