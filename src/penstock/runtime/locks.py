"""One process at a time: locks on files, which the system gives back even when their holder is killed.

The empty file stays: were it removed, one process could hold the removed one and another a new one. Windows has no such
locks; there everybody gets them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from penstock.errors import StorageError


@contextmanager
def if_free(file: Path) -> Iterator[bool]:
    """Hold a lock in the block if nobody else does, and say whether it is held.

    Raises:
        StorageError: when the file cannot be made or locked.
    """
    with _opened(file) as opened:
        yield _take(file, opened, wait=False)


@contextmanager
def when_free(file: Path, what: str, *, progress: bool = False) -> Iterator[None]:
    """Wait until nobody else holds a lock, and hold it in the block.

    Args:
        file: what is locked; it is made where it is missing.
        what: what its holder does, to be said when one has to wait.
        progress: say so on standard error.

    Raises:
        StorageError: when the file cannot be made or locked.
    """
    with _opened(file) as opened:
        if not _take(file, opened, wait=False):
            if progress:
                print(f"another process is {what}: waiting for it", file=sys.stderr, flush=True)
            _take(file, opened, wait=True)
        yield


def _opened(file: Path) -> BinaryIO:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("ab")
    except OSError as error:
        raise _refused(file, error) from error


def _take(file: Path, opened: BinaryIO, *, wait: bool) -> bool:
    """Take the lock; return whether it was taken."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(opened.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise _refused(file, error) from error
    return True


def _refused(file: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{file} could not be written and locked: {error.strerror or error}. Choose another folder, or make room in "
        "this one."
    )
