"""A buffer that survives a restart: frames written down in a file, one record behind the other.

A record is its length, its checksum, and what happened: a frame was kept, or settled. A record that a kill cut off is
the last one, and is left out. When most of the file speaks of settled frames it is written anew.

What was written is there after the process was killed; after the power failed, what the system had not yet written to
disk is not.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from penstock.delivery import Key, key_of
from penstock.errors import StorageError, WireError
from penstock.files import write_atomically
from penstock.locks import if_free
from penstock.wire import Frame, decode_up, encode

START = b"penstock journal 1\n"
HEAD = struct.Struct("<II")
"""Length and checksum of a record."""

SETTLED = struct.Struct("<QQ")
KEPT_MARK, SETTLED_MARK = b"k", b"s"
SLACK = 1 << 20
"""Bytes about settled frames that are not worth the writing anew."""


class FileJournal:
    """Frames in a file.

    Args:
        path: of the file; it is made where there is none.

    Raises:
        StorageError: when the file is no journal, or could not be opened.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock = ExitStack()
        if not self._lock.enter_context(if_free(path.with_name(f".{path.name}.lock"))):
            self._lock.close()
            raise StorageError(f"{path} is the journal of another process that runs: give each island its own.")
        self._sizes: OrderedDict[Key, int] = OrderedDict()
        self._found: list[Frame] = []
        whole = self._read()
        if self._bytes < whole or not path.exists():
            write_atomically(path, START + b"".join(_record(KEPT_MARK + encode(frame)) for frame in self._found))
        self._open()

    def kept(self) -> list[Frame]:
        """Return what was kept and not settled when the file was opened, oldest first."""
        return list(self._found)

    def keep(self, frame: Frame) -> None:
        """Write down a frame."""
        record = _record(KEPT_MARK + encode(frame))
        self._sizes[key_of(frame)] = len(record)
        self._write(record)

    def settle(self, key: Key) -> None:
        """Write down that a frame is done with."""
        if self._sizes.pop(key, None) is not None:
            self._write(_record(SETTLED_MARK + SETTLED.pack(*key)))
            if self._size > 2 * self._bytes + SLACK:
                self._rewrite()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._lock.close()

    @property
    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    @property
    def _bytes(self) -> int:
        """What the file would have if only kept frames stood in it."""
        return len(START) + sum(self._sizes.values())

    def _open(self) -> None:
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise StorageError(f"{self.path} could not be opened: {error.strerror or error}.") from error

    def _write(self, record: bytes) -> None:
        before = self._size
        try:
            if self._file.write(record) != len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(before)  # half a record would hide all behind it
            raise StorageError(
                f"{self.path} could not be written: {error.strerror or error}. Free some space."
            ) from error

    def _read(self) -> int:
        """Find what is kept; return how many bytes the file has."""
        if not self.path.exists():
            return 0
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise StorageError(f"{self.path} could not be read: {error.strerror or error}.") from error
        if not content.startswith(START):
            raise StorageError(f"{self.path} is no journal of frames: choose another file, or move it away.")
        frames: OrderedDict[Key, tuple[Frame, int]] = OrderedDict()
        for record in _records(content[len(START) :]):
            _apply(record, frames)
        self._found = [frame for frame, _ in frames.values()]
        self._sizes = OrderedDict((key, size) for key, (_, size) in frames.items())
        return len(content)

    def _rewrite(self) -> None:
        """Write the file anew, with what is kept alone."""
        self._file.close()
        self._read()
        write_atomically(self.path, START + b"".join(_record(KEPT_MARK + encode(frame)) for frame in self._found))
        self._open()


def _record(content: bytes) -> bytes:
    return HEAD.pack(len(content), zlib.crc32(content)) + content


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records up to the first that is cut off or damaged."""
    at = 0
    while at + HEAD.size <= len(content):
        size, checksum = HEAD.unpack_from(content, at)
        record = content[at + HEAD.size : at + HEAD.size + size]
        if len(record) != size or zlib.crc32(record) != checksum:
            return
        yield record
        at += HEAD.size + size


def _apply(record: bytes, frames: OrderedDict[Key, tuple[Frame, int]]) -> None:
    mark, rest = record[:1], record[1:]
    if mark == KEPT_MARK:
        try:
            frame = decode_up(rest)
        except WireError:
            return  # its checksum holds, so another version wrote it
        if isinstance(frame, Frame):
            frames[key_of(frame)] = frame, HEAD.size + len(record)
    elif mark == SETTLED_MARK and len(rest) == SETTLED.size:
        frames.pop(Key(*SETTLED.unpack(rest)), None)
