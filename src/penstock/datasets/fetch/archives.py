"""Tar archives: unpack one completely or not at all, or read some of its files without unpacking."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from penstock.datasets.files import is_file, read_bytes, reading
from penstock.errors import DataError, StorageError

_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)


def unpack(archive: Path, target: Path, *, progress: bool = False) -> None:
    """Unpack an archive into a new folder, which appears only when it is complete.

    Raises:
        DataError: if the archive is damaged, or a member would be written outside the folder.
        StorageError: if the folder is not empty or cannot be written; then no files are left behind.
    """
    check_empty(target)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            inside = Path(temporary) / target.name
            with tarfile.open(archive) as opened, _status(progress, f"unpacking {archive.name}"):
                opened.extractall(inside, filter="data")
            inside.rename(target)
    except _DAMAGED as error:
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


def read_files(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Read the files of these names from a folder, or from any folder of a tar archive.

    Returns:
        The content of each file, in the order of ``names``.

    Raises:
        DataError: if one is missing, or the archive is damaged.
    """
    if is_file(path):
        content = _read_members(path, names)
    else:
        content = {name: read_bytes(path / name) for name in names if is_file(path / name)}
    missing = [name for name in names if name not in content]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}: delete it and fetch it again.")
    return {name: content[name] for name in names}


def _read_members(archive: Path, names: Collection[str]) -> dict[str, bytes]:
    content = {}
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                name = Path(member.name).name
                file = opened.extractfile(member) if member.isfile() and name in names else None
                if file is not None:
                    content[name] = file.read()
    except (*_DAMAGED, OSError) as error:
        raise DataError(f"cannot read {archive} ({error}): delete it and fetch it again.") from error
    return content


def _status(progress: bool, text: str) -> AbstractContextManager[object]:
    if not progress:
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)
