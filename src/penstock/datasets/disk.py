"""What the disk refuses becomes an error of ours that names the file and says what to do.

A file that one may not read, a folder in a file's place, a disk without room: to Python all of these are an OSError.
Loaders read within `reading` and get a DataError; whatever fetches writes within `storing` and gets a StorageError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import DataError, StorageError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a refusal to read into a DataError; it names the file that the system names, or else ``path``."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or path} cannot be read ({error.strerror or error}): {_advice(error)}."
        ) from error


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn a refusal to write into a StorageError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} could not be written: {error.strerror or error}. Nothing of it is left behind; free some space, "
            "or set PENSTOCK_DATA to another folder."
        ) from error


def is_file(path: Path) -> bool:
    """Say whether a file is there.

    Raises:
        DataError: when the system does not tell.
    """
    with reading(path):
        return path.is_file()


def read_bytes(file: Path) -> bytes:
    """Read a file that a list or a folder promises.

    Raises:
        DataError: when the system refuses.
    """
    with reading(file):
        return file.read_bytes()


def read_text(file: Path) -> str:
    """Read a text in UTF-8.

    Raises:
        DataError: when the system refuses, or it is no such text.
    """
    try:
        return read_bytes(file).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is no text in UTF-8 ({error}): take it from the data set's archive again.") from error


def stamp(file: Path) -> str:
    """Return a text that changes when a file does: its size and the time of its last change.

    Raises:
        DataError: when the system refuses.
    """
    with reading(file):
        stat = file.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _advice(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "ask its owner for the right to read it, or give another folder"
    if isinstance(error, IsADirectoryError):
        return "a file is wanted there, and it is a folder: delete or move it"
    return "unpack or fetch the data again"
