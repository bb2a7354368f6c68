"""Write files atomically: to a temporary file beside the target, which is then renamed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from penstock.errors import StorageError


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write ``content`` to ``path``; after a kill or on a full disk, the previous file is unchanged.

    Args:
        private: make it readable by its owner only.
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
    """Create a folder and its parents, unless they exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create the folder {path}: {error.strerror or error}. Choose another.") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
