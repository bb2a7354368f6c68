"""Read and write files of data sets safely.

An unreadable file, a directory where a file should be, a full disk: Python raises OSError for all of them. Inside
`reading` that becomes a DataError, inside `storing` a StorageError, both with the path and what to do about it.
`load_arrays` reads a pickle of arrays without running any code from it.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from penstock.errors import DataError, StorageError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an OSError into a DataError that names the file the system names, or else ``path``."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot read {error.filename or path} ({error.strerror or error}): {_advice(error)}."
        ) from error


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write {path} ({error.strerror or error}); no partial file was left. Free some disk space, or set "
            "PENSTOCK_DATA to another folder."
        ) from error


def is_file(path: Path) -> bool:
    """Return whether a file exists; raise a DataError if the system does not allow the check."""
    with reading(path):
        return path.is_file()


def read_bytes(file: Path) -> bytes:
    """Return the content of a file, or raise a DataError."""
    with reading(file):
        return file.read_bytes()


def read_text(file: Path) -> str:
    """Return the content of a UTF-8 file, or raise a DataError."""
    try:
        return read_bytes(file).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text ({error}): extract it from the data set's archive again.") from error


def file_stamp(file: Path) -> str:
    """Return a string that changes when the file does: its size and modification time."""
    with reading(file):
        stat = file.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def check_listed(path: Path, listed: Collection[str], existing: Collection[str], advice: str) -> None:
    """Raise a DataError that ends with the advice unless every listed file exists."""
    missing = [name for name in listed if name not in existing]
    if missing:
        raise DataError(
            f"{path} lacks {len(missing):,} of the {len(listed):,} files in its lists, such as {missing[0]}. {advice}"
        )


def load_arrays(opened: BinaryIO, *, encoding: Literal["ASCII", "bytes"] = "ASCII") -> Any:
    """Read a pickle of arrays, numbers, strings, lists and dicts without running code from it.

    A pickle can name any function and have it called, yet some data sets are published as pickles.

    Args:
        opened: the file, positioned at the pickle's first byte.
        encoding: how to decode Python 2 strings; "bytes" leaves them undecoded.

    Raises:
        pickle.UnpicklingError: if it refers to anything else. A damaged pickle may raise almost any exception.
    """
    return _ArrayUnpickler(opened, encoding=encoding).load()


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickle numpy arrays and plain values; reject every other global."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            "numpy.ndarray": np.ndarray,
            "numpy.dtype": np.dtype,
            "numpy.core.multiarray._reconstruct": _new_array,  # numpy 1
            "numpy._core.multiarray._reconstruct": _new_array,  # numpy 2
            "_codecs.encode": _encode_latin1,  # how protocol 2 writes bytes
        }
        if f"{module}.{name}" not in allowed:
            raise pickle.UnpicklingError(f"the pickle refers to {module}.{name}, which is not allowed")
        return allowed[f"{module}.{name}"]


def _new_array(kind: type, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Create the array that the pickle then fills."""
    return np.ndarray(shape, dtype)


def _encode_latin1(text: str, encoding: str) -> bytes:
    """Encode as latin1 only; ``_codecs.encode`` would look up any codec."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the pickle uses the codec {encoding}, expected latin1")
    return text.encode("latin1")


def _advice(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "ask its owner for read permission, or choose another folder"
    if isinstance(error, IsADirectoryError):
        return "expected a file, got a directory; delete or move it"
    return "unpack or fetch the data again"
