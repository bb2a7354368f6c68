"""Write files so that nothing is ever half written: to a temporary file beside the target, then rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from penstock.errors import StorageError


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write ``content`` to ``path``; after a kill or on a full disk, what was there before is still there.

    Args:
        private: nobody but its owner may read it.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o600 if private else 0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise StorageError(
            f"{path} could not be written: {error.strerror or error}. What was there before is unchanged; free some "
            "space or choose another place."
        ) from error


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"the folder {path} could not be made: {error.strerror or error}. Choose another place."
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
