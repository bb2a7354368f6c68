"""Tar archives: unpack one whole or not at all, or read some of its files without unpacking it."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from penstock.errors import DataError, StorageError


def unpack(archive: Path, target: Path, *, progress: bool = False) -> None:
    """Unpack an archive into a new folder, which gets its name when all is in it.

    Raises:
        DataError: when the archive is damaged, or has a member that would land outside of the folder.
        StorageError: when it could not be written; then nothing of it is left behind.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        inside = Path(temporary) / target.name
        try:
            with tarfile.open(archive) as opened, _shown(progress, f"unpacking {archive.name}"):
                opened.extractall(inside, filter="data")
            inside.rename(target)
        except (tarfile.TarError, EOFError) as error:
            raise DataError(f"{archive} cannot be unpacked ({error}): delete it and fetch it again.") from error
        except OSError as error:
            raise StorageError(
                f"{archive} could not be unpacked into {target}: {error.strerror or error}. Nothing of it is left "
                "behind; free some space, or set PENSTOCK_DATA to another folder."
            ) from error


def read_files(place: Path, names: Collection[str]) -> dict[str, bytes]:
    """Read the files of these names from a folder, or from a tar archive, whatever folder of it they are in.

    Returns:
        What is in each file, in the order of ``names``, for an archive has an order of its own.

    Raises:
        DataError: when one is missing, or the archive is damaged.
    """
    if place.is_dir():
        content = {name: (place / name).read_bytes() for name in names if (place / name).is_file()}
    else:
        content = _members(place, names)
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
    except (tarfile.TarError, EOFError, OSError) as error:  # a damaged gzip is an OSError
        raise DataError(f"{archive} cannot be read ({error}): delete it and fetch it again.") from error
    return content


def _shown(progress: bool, text: str) -> AbstractContextManager[object]:
    if not progress:
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)
