"""Download one file over HTTP, completely or not at all.

Partial content is kept in ``NAME.part``. An interrupted download resumes from there, and a file gets its name only once
its checksum is right, so ``NAME`` is always complete. Two processes must not download the same file at the same time:
`penstock.datasets.fetch.locations.fetch_dataset` holds a lock. Written by hand because pooch cannot resume
(docs/decisions/0018-libraries.md).
"""

from __future__ import annotations

import hashlib
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO, Literal

from penstock.datasets.files import reading, storing
from penstock.errors import DataError, StorageError

TIMEOUT_S = 30.0
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Checksum:
    """The expected digest of a file: ``Checksum("sha256", "141f...")``."""

    algorithm: Literal["sha256", "md5"]
    digest: str

    def check(self, file: Path) -> None:
        """Raise a DataError if the file has another digest."""
        digest = hashlib.new(self.algorithm, usedforsecurity=False)
        with reading(file), file.open("rb") as opened:
            while block := opened.read(BLOCK_BYTES):
                digest.update(block)
        if digest.hexdigest() != self.digest:
            raise DataError(
                f"{file} is damaged or a different file: expected {self.algorithm} {self.digest}, got "
                f"{digest.hexdigest()}. Delete it and fetch it again."
            )


@dataclass(frozen=True)
class Download:
    """A file at a URL, with its checksum and size."""

    url: str
    file: str
    checksum: Checksum
    size_bytes: int


def download(source: Download, folder: Path, *, progress: bool = False) -> Path:
    """Download a file into a folder, resuming an earlier download of it.

    Returns:
        The complete file, with the right checksum.

    Raises:
        DataError: if the server cannot be reached, refuses, closes the connection early, or sends another file.
        StorageError: if the file cannot be written; then no partial file is left.
    """
    part = folder / f"{source.file}.part"
    with storing(part):
        size = part.stat().st_size if part.is_file() else 0
        received = size if size <= source.size_bytes else 0  # larger than the file: start again
        _check_space(folder, source.size_bytes - received)
        if received < source.size_bytes:
            _receive(source, part, received, progress)
        try:
            source.checksum.check(part)
        except DataError as error:
            part.unlink()
            raise DataError(f"discarded the download of {source.url}. {error}") from error
        return part.replace(folder / source.file)


def format_size(size_bytes: int) -> str:
    """Return a size in MB or GB.

    >>> format_size(170_052_171), format_size(5_148), format_size(2_428_923_189)
    ('170 MB', '0.01 MB', '2.4 GB')
    """
    if size_bytes >= 1e9:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.0f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e6:.2f} MB"


def _check_space(folder: Path, needed_bytes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise StorageError(
            f"not enough disk space in {folder}: {format_size(needed_bytes)} needed, {format_size(free)} free. Free "
            "some space, or set PENSTOCK_DATA to a folder on another disk."
        )


def _receive(source: Download, part: Path, received: int, progress: bool) -> None:
    """Append the server's response to the part file."""
    with _request(source, part, received) as response:
        if response.status != 206:
            received = 0  # the server ignores ranges and sends the whole file
        _check_length(source, response, received)
        with _open_part(part, append=received > 0) as file, _progress_bar(progress, source, received) as advance:
            while block := _read_block(source, response, received):
                file.write(block)
                received += len(block)
                advance(len(block))
    if received != source.size_bytes:
        raise _interrupted(source, received, "connection closed")


def _request(source: Download, part: Path, received: int) -> HTTPResponse:
    request = urllib.request.Request(source.url, headers={"Range": f"bytes={received}-"} if received else {})
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the part is not the beginning of the server's file
            part.unlink(missing_ok=True)
        raise DataError(f"{source.url} returned {error.code} {error.reason}: try again later.") from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DataError(
            f"cannot reach {source.url} ({reason}). Check the network connection, or download {source.file} elsewhere "
            f"and put it into {part.parent}."
        ) from error


def _check_length(source: Download, response: HTTPResponse, received: int) -> None:
    length = response.headers.get("Content-Length")
    if length is not None and received + int(length) != source.size_bytes:
        raise DataError(
            f"expected {source.size_bytes:,} bytes from {source.url}, got {received + int(length):,}: probably another "
            "page, such as a login page. Nothing was written."
        )


def _read_block(source: Download, response: HTTPResponse, received: int) -> bytes:
    try:
        return response.read(min(BLOCK_BYTES, source.size_bytes - received))  # never more than the file's size
    except (OSError, HTTPException) as error:
        raise _interrupted(source, received, str(error) or type(error).__name__) from error


def _interrupted(source: Download, received: int, reason: str) -> DataError:
    return DataError(
        f"the download of {source.url} was interrupted after {received:,} of {source.size_bytes:,} bytes ({reason}). "
        "Fetch it again to resume."
    )


@contextmanager
def _open_part(part: Path, *, append: bool) -> Iterator[BinaryIO]:
    """Open the part file; remove it if writing fails, to free a full disk."""
    try:
        with part.open("ab" if append else "wb") as file:
            yield file
    except OSError:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def _progress_bar(progress: bool, source: Download, received: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not progress) as bar:
        task = bar.add_task(source.file, total=source.size_bytes, completed=received)
        yield lambda count: bar.advance(task, count)
