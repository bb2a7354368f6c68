"""Download one file over HTTP, whole or not at all.

What has come so far is in ``NAME.part``. A download that was interrupted goes on from there, and only a file whose
checksum is right gets its name. So whoever finds ``NAME`` may take it for the whole file. Two processes must not
download the same file at a time: `penstock.datasets.fetch.places.fetch` sees to that.
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

from penstock.datasets.disk import reading, storing
from penstock.errors import DataError, StorageError

TIMEOUT_S = 30.0
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Checksum:
    """What a file's bytes must add up to: ``Checksum("sha256", "141f...")``."""

    algorithm: Literal["sha256", "md5"]
    digest: str

    def check(self, file: Path) -> None:
        """Raise a DataError unless the file is the one meant."""
        digest = hashlib.new(self.algorithm, usedforsecurity=False)
        with reading(file), file.open("rb") as opened:
            while block := opened.read(BLOCK_BYTES):
                digest.update(block)
        if digest.hexdigest() != self.digest:
            raise DataError(
                f"{file} is damaged or another file: its {self.algorithm} is {digest.hexdigest()}, the original's is "
                f"{self.digest}. Delete it and fetch it again."
            )


@dataclass(frozen=True)
class Download:
    """A file at an address, with what is needed to know that it came whole."""

    address: str
    file: str
    checksum: Checksum
    size_bytes: int


def download(wanted: Download, folder: Path, *, progress: bool = False) -> Path:
    """Download a file into a folder, going on where an earlier download of it ended.

    Returns:
        The whole file, its checksum right.

    Raises:
        DataError: no network, a refusal by the server, a cut connection, or another file than the one meant.
        StorageError: when the file could not be written; then nothing of it is left behind.
    """
    part = folder / f"{wanted.file}.part"
    with storing(part):
        have = _have(part, wanted.size_bytes)
        _make_room(folder, wanted.size_bytes - have)
        if have < wanted.size_bytes:
            _receive(wanted, part, have, progress)
        try:
            wanted.checksum.check(part)
        except DataError as error:
            part.unlink()
            raise DataError(f"what came from {wanted.address} was not kept. {error}") from error
        return part.replace(folder / wanted.file)


def megabytes(size_bytes: int) -> str:
    """Return a size as a person reads it.

    >>> megabytes(170_052_171), megabytes(5_148), megabytes(2_428_923_189)
    ('170 MB', '0.01 MB', '2.4 GB')
    """
    if size_bytes >= 1e9:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.0f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e6:.2f} MB"


def _have(part: Path, size_bytes: int) -> int:
    have = part.stat().st_size if part.is_file() else 0
    return have if have <= size_bytes else 0  # longer than the whole: of no use


def _make_room(folder: Path, needed_bytes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise StorageError(
            f"{folder} has {megabytes(free)} free, and {megabytes(needed_bytes)} are to come. Free some space, or set "
            "PENSTOCK_DATA to a folder on another disk."
        )


def _receive(wanted: Download, part: Path, have: int, progress: bool) -> None:
    """Write what the server sends to the part file, behind what is there already."""
    with _answer(wanted, part, have) as response:
        if response.status != 206:
            have = 0  # the server sends the whole file whatever is asked for
        _check_length(wanted, response, have)
        with _writing(part, append=have > 0) as file, _bar(progress, wanted, have) as advance:
            while block := _block(wanted, response, have):
                file.write(block)
                have += len(block)
                advance(len(block))
    if have != wanted.size_bytes:
        raise _cut(wanted, have, "the connection ended")


def _answer(wanted: Download, part: Path, have: int) -> HTTPResponse:
    request = urllib.request.Request(wanted.address, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # what is there is no beginning of what the server has
            part.unlink(missing_ok=True)
        raise DataError(f"{wanted.address} answered {error.code} {error.reason}: try again later.") from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DataError(
            f"{wanted.address} could not be reached ({reason}). Is this machine online? {wanted.file} can also be "
            f"downloaded elsewhere and put into {part.parent}."
        ) from error


def _check_length(wanted: Download, response: HTTPResponse, have: int) -> None:
    length = response.headers.get("Content-Length")
    if length is not None and have + int(length) != wanted.size_bytes:
        raise DataError(
            f"{wanted.address} offers {have + int(length):,} bytes, and {wanted.file} has {wanted.size_bytes:,}: "
            "something between here and there answers in its place, such as a login page. Nothing was written."
        )


def _block(wanted: Download, response: HTTPResponse, have: int) -> bytes:
    try:
        return response.read(min(BLOCK_BYTES, wanted.size_bytes - have))  # never more than the file can have
    except (OSError, HTTPException) as error:
        raise _cut(wanted, have, str(error) or type(error).__name__) from error


def _cut(wanted: Download, have: int, reason: str) -> DataError:
    return DataError(
        f"only {have:,} of {wanted.size_bytes:,} bytes came from {wanted.address}: {reason}. They are kept: fetch it "
        "again, and it goes on from there."
    )


@contextmanager
def _writing(part: Path, *, append: bool) -> Iterator[BinaryIO]:
    """Open the part file; when it cannot be written, remove it: a full disk is not to stay full."""
    try:
        with part.open("ab" if append else "wb") as file:
            yield file
    except OSError:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def _bar(progress: bool, wanted: Download, have: int) -> Iterator[Callable[[int], None]]:
    if not progress:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(wanted.file, total=wanted.size_bytes, completed=have)
        yield lambda count: shown.advance(task, count)
