"""Read some files of a tar archive without unpacking it."""

from __future__ import annotations

import tarfile
from collections.abc import Collection
from pathlib import Path

from penstock.datasets.fetch.sources import DAMAGED
from penstock.datasets.files import is_file, read_bytes
from penstock.errors import DataError


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
    except (*DAMAGED, OSError) as error:
        raise DataError(f"cannot read {archive} ({error}): delete it and fetch it again.") from error
    return content
