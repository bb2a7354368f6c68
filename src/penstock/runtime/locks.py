"""Locks between processes, on files: a thin layer over filelock.

The operating system releases a lock when its holder exits, also when it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from penstock.errors import StorageError


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock in the block if no other process holds it; yield whether it is held.

    Args:
        path: the lock file; it is created with its folder.

    Raises:
        StorageError: when the file cannot be created or locked.
    """
    lock = FileLock(path, thread_local=False)
    try:
        yield _acquire(lock, blocking=False)
    finally:
        lock.release()


@contextmanager
def wait_for_lock(path: Path, task: str, *, progress: bool = False) -> Iterator[None]:
    """Wait until no other process holds the lock, then hold it in the block.

    Args:
        path: the lock file; it is created with its folder.
        task: what the holder does, such as "fetching CIFAR-10"; printed while waiting.
        progress: print to standard error that another process holds the lock.

    Raises:
        StorageError: when the file cannot be created or locked.
    """
    lock = FileLock(path, thread_local=False)
    try:
        if not _acquire(lock, blocking=False):
            if progress:
                print(f"waiting for another process that is {task}", file=sys.stderr, flush=True)
            _acquire(lock, blocking=True)
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, *, blocking: bool) -> bool:
    path = Path(lock.lock_file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=blocking)
    except Timeout:
        return False
    except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
        reason = getattr(error, "strerror", None) or error
        raise StorageError(
            f"{path} could not be created and locked: {reason}. Choose another folder or free some space."
        ) from error
    return True
