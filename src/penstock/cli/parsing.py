"""What the commands of devices share."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from penstock.errors import MissingExtraError


def missing(error: ModuleNotFoundError, extra: str) -> MissingExtraError:
    """Return the error that names what to install."""
    return MissingExtraError(f"this takes {error.name!r}, which is not installed: pip install 'penstock[{extra}]'.")


def parser_of(command: Callable[..., None], example: str) -> argparse.ArgumentParser:
    """Return a parser that says what a command does, from its docstring."""
    return argparse.ArgumentParser(
        prog=f"penstock {command.__name__}", description=command.__doc__, epilog=f"Example: {example}"
    )
