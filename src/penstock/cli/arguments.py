"""Arguments of several commands, and the functions that parse them or load what they name.

Models and data are named as ``package.module:function``.
"""

from __future__ import annotations

import importlib
import inspect
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
import typer

from penstock.datasets.loading import Data
from penstock.datasets.wrist import Windows
from penstock.errors import DataError

ModelName = Annotated[str, typer.Option("--model", "-m", help="Network, as package.module:function.", metavar="MODEL")]
DataName = Annotated[str, typer.Option("--data", "-d", help="Data, as package.module:function.", metavar="DATA")]
NetworkFile = Annotated[Path, typer.Argument(help="Gated network, as written by penstock train.", show_default=False)]


def load_object(name: str, what: str) -> Any:
    """Return the object named as package.module:function, called if it is callable.

    Raises:
        DataError: when it does not exist, its module cannot be imported, or calling it takes arguments.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute) or module.startswith("."):
        raise DataError(f"{what} {name!r}: expected package.module:function, such as mypackage.nets:wake_word.")
    imported = _import(module, f"{what} {name!r}")
    try:
        found = getattr(imported, attribute)
    except AttributeError as error:
        raise DataError(f"{what} {name!r}: module {module} has no {attribute!r}.") from error
    if not callable(found) or isinstance(found, torch.nn.Module):
        return found
    _check_takes_no_arguments(found, attribute, f"{what} {name!r}")
    return found()


def _import(module: str, subject: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{subject}: no module {error.name!r} in the working directory ({os.getcwd()}) or among installed packages."
        ) from error
    except Exception as error:  # the user's module may raise anything
        raise DataError(
            f"{subject}: importing {module} failed with {type(error).__name__}: {_with_location(error)}."
        ) from error


def _with_location(error: Exception) -> str:
    """Return an error's message, and the file and line that raised it."""
    if isinstance(error, SyntaxError):  # its message has them
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error} ({Path(last.filename).name}, line {last.lineno})"


def _check_takes_no_arguments(function: Callable[..., Any], name: str, subject: str) -> None:
    """Refuse a function that cannot be called without arguments; errors inside it are its own."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-ins have none
        return
    try:
        signature.bind()
    except TypeError as error:
        raise DataError(
            f"{subject} takes arguments: {name}{signature}. Name a function without arguments, such as one of your "
            "own that calls it."
        ) from error


def load_model(name: str) -> torch.nn.Module:
    """Return the network with this name."""
    model = load_object(name, "model")
    if not isinstance(model, torch.nn.Module):
        raise DataError(f"model {name!r}: expected a torch.nn.Module, got {type(model).__name__}.")
    return model


def load_data(name: str) -> Mapping[str, Any]:
    """Return the splits of the data with this name."""
    found = load_object(name, "data")
    splits = found if isinstance(found, Mapping) else dict(inspect.getmembers(found, lambda part: not callable(part)))
    if splits.get("train") is None:
        raise DataError(f"data {name!r} has no 'train': expected a dict or an object with train, validation and test.")
    return {key: part.samples if isinstance(part, Windows) else part for key, part in splits.items()}


def select_split(splits: Mapping[str, Any], split: str) -> Data:
    """Return one split of the data; None counts as missing."""
    if splits.get(split) is None:
        known = ", ".join(key for key in ("train", "validation", "test") if splits.get(key) is not None)
        raise DataError(f"the data has no split {split!r}, only {known}. Choose one of them with --split.")
    return splits[split]


def parse_example(shape: str, dtype: str) -> torch.Tensor:
    """Return a batch of one sample of this shape and type, such as "1x28x28" and "float32"."""
    try:
        sizes = [int(size) for size in shape.replace(",", "x").split("x")]
        return torch.zeros((1, *sizes), dtype=getattr(torch, dtype))
    except (ValueError, AttributeError, TypeError, RuntimeError) as error:
        raise DataError(
            f"--shape {shape} --dtype {dtype}: expected the shape of one sample, such as 1x28x28, and a torch type, "
            "such as float32 or int64."
        ) from error


def parse_cuts(text: str) -> int | list[float | str]:
    """Return a number of cuts ("3"), or their depths ("0.2,0.4")."""
    try:
        return int(text) if text.isdigit() else [float(part) for part in text.split(",")]
    except ValueError as error:
        raise DataError(
            f"--at {text}: expected depths such as 0.4 or 0.2,0.4, or a number of gates such as 3. To name a module, "
            "use --after."
        ) from error


def parse_amount(text: str | None) -> int | float | str | None:
    """Return --keep as `LayerConfig` takes it."""
    if text is None or " " in text:
        return text
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text  # refused by LayerConfig


def parse_labels(texts: Sequence[str], names: Sequence[str] | None) -> list[list[int]]:
    """Return the labels that texts like "1,3" or "yes,no" list.

    >>> parse_labels(["1,2", "yes"], ["none", "no", "yes"])
    [[1, 2], [2]]
    """
    numbers = {name: label for label, name in enumerate(names or ())}
    try:
        return [
            [numbers[part] if part in numbers else int(part) for part in map(str.strip, text.split(","))]
            for text in texts
        ]
    except ValueError as error:
        known = f"or names among {', '.join(numbers)}" if numbers else "(the data has no class_names)"
        raise DataError(
            f"--positives {' --positives '.join(texts)}: expected class numbers separated by commas, such as 1,3, "
            f"{known}."
        ) from error
