"""What the commands of devices share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from zipfile import BadZipFile

import numpy as np

from penstock.errors import DataError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.pipeline import check_input


def parser_of(command: Callable[..., None], example: str) -> argparse.ArgumentParser:
    """Return a parser that says what a command does, from its docstring."""
    return argparse.ArgumentParser(
        prog=f"penstock {command.__name__}", description=command.__doc__, epilog=f"Example: {example}"
    )


def samples_of(path: Path, manifest: Manifest) -> np.ndarray:
    """Read samples; one alone becomes a batch.

    Raises:
        DataError: when the file is no array.
    """
    try:
        x = np.load(path, allow_pickle=False)
    except OSError as error:
        raise DataError(f"{path} could not be read: {error.strerror or error}.") from error
    except (ValueError, EOFError, MemoryError, SyntaxError, BadZipFile, TokenError) as error:
        raise DataError(f"{path} is no .npy file of numbers: write the samples with numpy.save.") from error
    if not isinstance(x, np.ndarray):
        raise DataError(f"{path} holds several arrays; give a .npy file with one array of samples.")
    wanted = manifest.stages[0].input
    if x.shape == wanted.shape:
        x = x[None]
    if x.dtype.kind == np.dtype(wanted.dtype).kind:
        made = x.astype(wanted.dtype)
        if x.dtype.kind in "iu" and (made != x).any():
            raise DataError(f"{path} holds numbers that {wanted.dtype} cannot hold: {x.min()} to {x.max()} came.")
        x = made
    check_input(x, wanted)
    if not len(x):
        raise DataError(f"{path} holds no samples.")
    return x
