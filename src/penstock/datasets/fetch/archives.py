"""Tar archives: unpack one whole or not at all, or read some of its files without unpacking it."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from penstock.datasets.disk import is_file, read_bytes, reading
from penstock.errors import DataError, StorageError

_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)


def unpack(archive: Path, target: Path, *, progress: bool = False) -> None:
    """Unpack an archive into a new folder, which gets its name when all is in it.

    Raises:
        DataError: when the archive is damaged, or has a member that would land outside of the folder.
        StorageError: when something is in the folder already, or it could not be written; then nothing of the archive
            is left behind.
    """
    check_vacant(target)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            inside = Path(temporary) / target.name
            with tarfile.open(archive) as opened, _shown(progress, f"unpacking {archive.name}"):
                opened.extractall(inside, filter="data")
            inside.rename(target)
    except _DAMAGED as error:
        raise DataError(f"{archive} cannot be unpacked ({error}): delete it and fetch it again.") from error
    except OSError as error:
        raise StorageError(
            f"{archive} could not be unpacked into {target}: {error.strerror or error}. Nothing of it is left behind; "
            "free some space, or set PENSTOCK_DATA to another folder."
        ) from error


def check_vacant(target: Path) -> None:
    """Raise a StorageError unless a folder can be made here: nothing is there, or an empty folder."""
    with reading(target):
        taken = any(target.iterdir()) if target.is_dir() else target.exists()
    if taken:
        raise StorageError(
            f"{target} is there already and not empty, so no archive can be unpacked into it: delete or move {target}, "
            "then fetch it again."
        )


def read_files(place: Path, names: Collection[str]) -> dict[str, bytes]:
    """Read the files of these names from a folder, or from a tar archive, whatever folder of it they are in.

    Returns:
        What is in each file, in the order of ``names``, for an archive has an order of its own.

    Raises:
        DataError: when one is missing, or the archive is damaged.
    """
    if is_file(place):
        content = _members(place, names)
    else:
        content = {name: read_bytes(place / name) for name in names if is_file(place / name)}
    missing = [name for name in names if name not in content]
    if missing:
        raise DataError(f"{place} lacks {', '.join(missing)}: delete it and fetch it again.")
    return {name: content[name] for name in names}


def _members(archive: Path, names: Collection[str]) -> dict[str, bytes]:
    content = {}
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                name = Path(member.name).name
                file = opened.extractfile(member) if member.isfile() and name in names else None
                if file is not None:
                    content[name] = file.read()
    except (*_DAMAGED, OSError) as error:
        raise DataError(f"{archive} cannot be read ({error}): delete it and fetch it again.") from error
    return content


def _shown(progress: bool, text: str) -> AbstractContextManager[object]:
    if not progress:
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)
