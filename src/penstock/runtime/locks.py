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
    lock = _lock(path)
    acquired = _acquire(lock, path, blocking=False)
    try:
        yield acquired
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
    lock = _lock(path)
    if not _acquire(lock, path, blocking=False):
        if progress:
            print(f"waiting for another process that is {task}", file=sys.stderr, flush=True)
        _acquire(lock, path, blocking=True)
    try:
        yield
    finally:
        lock.release()


def _lock(path: Path) -> FileLock:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _storage_error(path, error) from error
    return FileLock(path, thread_local=False)


def _acquire(lock: FileLock, path: Path, *, blocking: bool) -> bool:
    try:
        lock.acquire(blocking=blocking)
    except Timeout:
        return False
    except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
        raise _storage_error(path, error) from error
    return True


def _storage_error(path: Path, error: Exception) -> StorageError:
    reason = getattr(error, "strerror", None) or error
    return StorageError(f"{path} could not be created and locked: {reason}. Choose another folder or free some space.")
