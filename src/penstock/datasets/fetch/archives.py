"""Unpack a tar archive, completely or not at all."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from pathlib import Path

from penstock.datasets.files import reading
from penstock.errors import DataError, StorageError

DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)
"""What reading a damaged archive raises."""


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
