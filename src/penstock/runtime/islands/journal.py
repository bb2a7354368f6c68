"""A buffer that survives a restart: frames written down in a file, one record behind the other.

A record is its length, its checksum, and what happened: a frame was kept, or settled. A record that a kill cut off is
the last one, and is left out. One that is damaged is left out too, with a warning and a copy of the file. When most of
the file speaks of settled frames it is written anew; where the disk has no room for that, it stays as it is.

What was written is there after the process was killed; after the power failed, what the system had not yet written to
disk is not.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from penstock.errors import StorageError, WireError
from penstock.runtime.files import write_atomically
from penstock.runtime.islands.delivery import Key, key_of
from penstock.runtime.islands.protocol import Frame, decode_up, encode
from penstock.runtime.locks import if_free

LOG = logging.getLogger("penstock.journal")

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
        self._slack = SLACK
        is_new = not path.exists()
        whole = 0 if is_new else self._read()
        if is_new:
            write_atomically(path, START, private=True)
        self._open()
        if self._bytes < whole:
            self._shorten()

    def kept(self) -> list[Frame]:
        """Return what was kept and not settled when the file was opened, oldest first."""
        return list(self._found)

    def keep(self, frame: Frame) -> None:
        """Write down a frame."""
        record = _record(KEPT_MARK + encode(frame))
        self._write(record)
        self._sizes[key_of(frame)] = len(record)

    def ack(self, key: Key) -> None:
        """Write down that a frame is done with."""
        if self._sizes.pop(key, None) is not None:
            self._write(_record(SETTLED_MARK + SETTLED.pack(*key)))
            if self._size > 2 * self._bytes + self._slack:
                self._read()
                self._shorten()

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
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise StorageError(f"{self.path} could not be read: {error.strerror or error}.") from error
        if not content.startswith(START):
            raise StorageError(f"{self.path} is no journal of frames: choose another file, or move it away.")
        frames: OrderedDict[Key, tuple[Frame, int]] = OrderedDict()
        end = damaged = 0
        for start, record in _records(content):
            damaged += start - end if end else start - len(START)
            end = start + HEAD.size + len(record)
            _apply(record, frames)
        self._end = end or len(START)
        if damaged:
            self._save_damaged(content, damaged)
        self._found = [frame for frame, _ in frames.values()]
        self._sizes = OrderedDict((key, size) for key, (_, size) in frames.items())
        return len(content)

    def _save_damaged(self, content: bytes, damaged: int) -> None:
        copy = self.path.with_name(f"{self.path.name}.damaged")
        try:
            write_atomically(copy, content, private=True)
            where = f"a copy of the file is {copy}"
        except StorageError as error:
            where = f"it could not be copied: {error}"
        LOG.warning("%d bytes of %s are damaged, and the frames in them are lost; %s", damaged, self.path, where)

    def _shorten(self) -> None:
        """Write the file anew, with what is kept alone; where that cannot be, let it stand as far as it is whole."""
        try:
            kept = START + b"".join(_record(KEPT_MARK + encode(frame)) for frame in self._found)
            write_atomically(self.path, kept, private=True)
        except StorageError as error:
            LOG.warning("%s The journal stays as long as it is.", error)
            self._file.truncate(self._end)  # half a record would hide all behind it
            self._slack = 2 * self._size  # before it is tried again
            return
        self._file.close()
        self._open()
        self._slack = SLACK


def _record(content: bytes) -> bytes:
    return HEAD.pack(len(content), zlib.crc32(content)) + content


def _records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each whole record and where it starts; what is damaged in between is passed over."""
    at = len(START)
    while at + HEAD.size < len(content):
        size, checksum = HEAD.unpack_from(content, at)
        end = at + HEAD.size + size
        is_likely = end <= len(content) and content[at + HEAD.size : at + HEAD.size + 1] in (KEPT_MARK, SETTLED_MARK)
        if is_likely and zlib.crc32(content[at + HEAD.size : end]) == checksum:
            yield at, content[at + HEAD.size : end]
            at = end
        else:
            at += 1


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
