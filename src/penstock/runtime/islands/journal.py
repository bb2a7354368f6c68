"""Keep the frames of an outbox in a file, so that they survive a restart.

The file is a sequence of records: length, checksum, and either a frame or the key of an answered frame. A last record
that a kill truncated is skipped. Damaged records are skipped too, with a warning and a copy of the file. When most of
the file is about answered frames, it is compacted; if the disk has no room for that, it stays as it is.

Writes survive a kill of the process. They are not synced, so a power failure may lose the latest ones.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from penstock.errors import StorageError, WireError
from penstock.runtime.files import write_atomically
from penstock.runtime.islands.delivery import Key, key_of
from penstock.runtime.islands.protocol import Frame, decode_client, encode
from penstock.runtime.locks import try_lock

LOG = logging.getLogger("penstock.journal")

START = b"penstock journal 1\n"
HEAD = struct.Struct("<II")  # length and CRC-32 of a record
ACKED = struct.Struct("<QQ")
FRAME_MARK, ACKED_MARK = b"k", b"s"
SLACK = 1 << 20  # bytes about answered frames below which the file is not compacted


class FileJournal:
    """Keeps an outbox's frames over a restart, in a file that is created if missing.

    Raises:
        StorageError: if the file is not a journal, cannot be opened, or is in use by another process.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock = ExitStack()
        if not self._lock.enter_context(try_lock(path.with_name(f".{path.name}.lock"))):
            self._lock.close()
            raise StorageError(f"{path} is in use by another process: give each island a journal of its own.")
        self._slack = SLACK
        if not path.exists():
            write_atomically(path, START, private=True)
        size = self._read()
        self._open()
        if self._live_bytes < size:
            self._compact()

    def frames(self) -> list[Frame]:
        """Return the unanswered frames when the file was opened, oldest first."""
        return list(self._frames)

    def append(self, frame: Frame) -> None:
        """Write a frame."""
        record = _record(FRAME_MARK + encode(frame))
        self._write(record)
        self._sizes[key_of(frame)] = len(record)

    def ack(self, key: Key) -> None:
        """Write that a frame is answered."""
        if self._sizes.pop(key, None) is not None:
            self._write(_record(ACKED_MARK + ACKED.pack(*key)))
            if self._file_bytes > 2 * self._live_bytes + self._slack:
                self._read()
                self._compact()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._lock.close()

    @property
    def _file_bytes(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    @property
    def _live_bytes(self) -> int:
        """The size of the file if it held unanswered frames only."""
        return len(START) + sum(self._sizes.values())

    def _open(self) -> None:
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise StorageError(f"cannot open {self.path}: {error.strerror or error}.") from error

    def _write(self, record: bytes) -> None:
        before = self._file_bytes
        try:
            if self._file.write(record) != len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(before)  # half a record would hide those after it
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}. Free some disk space.") from error

    def _read(self) -> int:
        """Find the unanswered frames; return the size of the file."""
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror or error}.") from error
        if not content.startswith(START):
            raise StorageError(f"{self.path} is not a journal: choose another file, or move it away.")
        frames: dict[Key, tuple[Frame, int]] = {}
        self._end, damaged = len(START), 0  # the end of the last record
        for start, record in _records(content):
            damaged += start - self._end
            self._end = start + HEAD.size + len(record)
            _apply(record, frames)
        if damaged:
            self._save_damaged(content, damaged)
        self._frames = [frame for frame, _ in frames.values()]
        self._sizes = {key: size for key, (_, size) in frames.items()}
        return len(content)

    def _save_damaged(self, content: bytes, damaged: int) -> None:
        copy = self.path.with_name(f"{self.path.name}.damaged")
        try:
            write_atomically(copy, content, private=True)
            note = f"a copy of the file is {copy}"
        except StorageError as error:
            note = f"the file could not be copied: {error}"
        LOG.warning("%d bytes of %s are damaged and their frames lost; %s", damaged, self.path, note)

    def _compact(self) -> None:
        """Rewrite the file with the unanswered frames only; if that fails, only cut off a truncated last record."""
        try:
            content = START + b"".join(_record(FRAME_MARK + encode(frame)) for frame in self._frames)
            write_atomically(self.path, content, private=True)
        except StorageError as error:
            LOG.warning("cannot compact the journal: %s", error)
            self._file.truncate(self._end)  # half a record would hide those after it
            self._slack = 2 * self._file_bytes  # before the next attempt
            return
        self._file.close()
        self._open()
        self._slack = SLACK


def _record(content: bytes) -> bytes:
    return HEAD.pack(len(content), zlib.crc32(content)) + content


def _records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and content of each valid record; skip damaged bytes."""
    at = len(START)
    while at + HEAD.size < len(content):
        size, checksum = HEAD.unpack_from(content, at)
        end = at + HEAD.size + size
        is_plausible = end <= len(content) and content[at + HEAD.size : at + HEAD.size + 1] in (FRAME_MARK, ACKED_MARK)
        if is_plausible and zlib.crc32(content[at + HEAD.size : end]) == checksum:
            yield at, content[at + HEAD.size : end]
            at = end
        else:
            at += 1


def _apply(record: bytes, frames: dict[Key, tuple[Frame, int]]) -> None:
    mark, rest = record[:1], record[1:]
    if mark == FRAME_MARK:
        try:
            frame = decode_client(rest)
        except WireError:
            return  # the checksum is right, so another version wrote it
        if isinstance(frame, Frame):
            frames[key_of(frame)] = frame, HEAD.size + len(record)
    elif mark == ACKED_MARK and len(rest) == ACKED.size:
        frames.pop(Key(*ACKED.unpack(rest)), None)
