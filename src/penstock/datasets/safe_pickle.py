"""Read numpy arrays from a pickle without running its code.

A pickle can name any function and have it called. Some data sets are published as pickles all the same. Here only
arrays, numbers, texts, lists and dicts come through; a pickle that asks for anything else is refused.
"""

import pickle
from typing import Any, BinaryIO, Literal

import numpy as np


def load_arrays(opened: BinaryIO, *, encoding: Literal["ASCII", "bytes"] = "ASCII") -> Any:
    """Read one pickle of arrays and plain values.

    Args:
        opened: the file, at the pickle's first byte.
        encoding: what Python 2's texts become; "bytes" keeps them as they are.

    Raises:
        pickle.UnpicklingError: when it asks for something else. A damaged pickle raises almost anything.
    """
    return _OnlyArrays(opened, encoding=encoding).load()


class _OnlyArrays(pickle.Unpickler):
    """Unpickle numpy arrays and Python's plain values; refuse every other global."""

    def find_class(self, module: str, name: str) -> Any:
        admitted = {
            "numpy.ndarray": np.ndarray,
            "numpy.dtype": np.dtype,
            "numpy.core.multiarray._reconstruct": _new_array,  # numpy 1
            "numpy._core.multiarray._reconstruct": _new_array,  # numpy 2
            "_codecs.encode": _latin1,  # how protocol 2 writes bytes
        }
        if f"{module}.{name}" not in admitted:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs")
        return admitted[f"{module}.{name}"]


def _new_array(kind: type, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Make the empty array that a pickle then fills."""
    return np.ndarray(shape, dtype)


def _latin1(text: str, encoding: str) -> bytes:
    """Encode, without the many codecs that ``_codecs.encode`` would look up."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the codec {encoding}, and bytes in a pickle are latin1")
    return text.encode("latin1")
