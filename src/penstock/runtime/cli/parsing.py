"""Parse options and read samples, for the commands of a device."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from tokenize import TokenError
from typing import NoReturn
from zipfile import BadZipFile

import numpy as np

from penstock.errors import DataError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.pipeline import check_input


class Parser(argparse.ArgumentParser):
    """An argparse parser that suggests options for a mistyped one."""

    def error(self, message: str) -> NoReturn:
        wrong = [word for word in message.split() if word.startswith("--")] if "unrecognized" in message else []
        near = [
            name for word in wrong for name in get_close_matches(word.partition("=")[0], self._option_string_actions)
        ]
        super().error(f"{message}. Did you mean {' or '.join(near)}?" if near else message)


def parser_of(command: Callable[..., None], example: str) -> argparse.ArgumentParser:
    """Return a parser of a command, such as `penstock_run`, that is described by its docstring."""
    return Parser(prog=command.__name__.replace("_", " "), description=command.__doc__, epilog=f"Example: {example}")


def samples_of(path: Path, manifest: Manifest) -> np.ndarray:
    """Read samples from a .npy file; a single sample becomes a batch of one.

    Raises:
        DataError: if the file is not an array of samples.
    """
    try:
        x = np.load(path, allow_pickle=False)
    except OSError as error:
        raise DataError(f"{path} could not be read: {error.strerror or error}.") from error
    except (ValueError, EOFError, MemoryError, SyntaxError, BadZipFile, TokenError) as error:
        raise DataError(f"{path} is not a .npy file of numbers: write the samples with numpy.save.") from error
    if not isinstance(x, np.ndarray):
        raise DataError(f"{path} holds several arrays: expected a .npy file with one array of samples.")
    expected = manifest.stages[0].input
    if x.shape == expected.shape:
        x = x[None]
    if x.dtype.kind == np.dtype(expected.dtype).kind:
        converted = x.astype(expected.dtype)
        if x.dtype.kind in "iu" and (converted != x).any():
            raise DataError(f"{path}: values {x.min()} to {x.max()} do not fit {expected.dtype}.")
        x = converted
    check_input(x, expected)
    if not len(x):
        raise DataError(f"{path} holds no samples.")
    return x
