"""One process at a time: a lock on a file, which the system gives back even when its holder is killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.data.disk import storing


@contextmanager
def one_at_a_time(file: Path, what: str, *, progress: bool = False) -> Iterator[None]:
    """Wait until no other process holds the lock, and hold it for a while.

    The empty file stays: were it removed, one process could hold the removed one and another a new one. Windows has no
    such locks; there nobody waits.

    Args:
        file: what is locked; it is made where it is missing.
        what: what the holder does, to be said when one has to wait.
        progress: say so on standard error.

    Raises:
        StorageError: when the file cannot be made or locked.
    """
    if sys.platform == "win32":
        yield
        return
    with storing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = file.open("ab")
    with opened:
        with storing(file):
            _lock(opened.fileno(), f"another process is {what}: waiting for it" if progress else None)
        yield


def _lock(descriptor: int, say: str | None) -> None:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if say is not None:
            print(say, file=sys.stderr, flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
