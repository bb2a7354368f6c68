"""Understand what was typed at the command line: names of Python objects, shapes, places, folders.

Each function takes the text and returns what it stands for, or says what is allowed.
"""

from __future__ import annotations

import importlib
import inspect
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from penstock.datasets.loading import Data
from penstock.datasets.wrist import Windows
from penstock.errors import DataError


def named(name: str, what: str) -> Any:
    """Return what a name like package.module:function stands for, called if it can be.

    Raises:
        DataError: when there is no such thing, its module cannot be imported, or calling it takes arguments.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute) or module.startswith("."):
        raise DataError(
            f"{what} {name!r} is not understood: give package.module:function, such as mypackage.nets:wake_word."
        )
    imported = _imported(module, f"{what} {name!r}")
    try:
        found = getattr(imported, attribute)
    except AttributeError as error:
        raise DataError(f"{what} {name!r}: the module {module} has no {attribute!r}.") from error
    if not callable(found) or isinstance(found, torch.nn.Module):
        return found
    _check_callable(found, attribute, f"{what} {name!r}")
    return found()


def _imported(module: str, named_as: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{named_as}: no module {error.name!r}. It is looked for in the working directory ({os.getcwd()}) and "
            "among installed packages."
        ) from error
    except Exception as error:  # a module of the user's runs any code
        raise DataError(
            f"{named_as}: the module {module} cannot be imported: {type(error).__name__}: {_with_place(error)}. Mend "
            "the module."
        ) from error


def _with_place(error: Exception) -> str:
    """Return what an error says, and where it was raised."""
    if isinstance(error, SyntaxError):  # it says so itself
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error} ({Path(last.filename).name}, line {last.lineno})"


def _check_callable(found: Callable[..., Any], attribute: str, named_as: str) -> None:
    """Refuse what cannot be called without arguments; an error inside of it is its own."""
    try:
        signature = inspect.signature(found)
    except ValueError:  # some built-in functions do not tell
        return
    try:
        signature.bind()
    except TypeError as error:
        raise DataError(
            f"{named_as} needs arguments, {attribute}{signature}: give a function that can be called without any, such "
            "as one of your own that calls it."
        ) from error


def model_of(name: str) -> torch.nn.Module:
    """Return the network that a name gives."""
    model = named(name, "the model")
    if not isinstance(model, torch.nn.Module):
        raise DataError(f"the model {name!r} gives a {type(model).__name__}; a torch.nn.Module is wanted.")
    return model


def data_of(name: str) -> Mapping[str, Any]:
    """Return the parts of the data that a name gives, by their names."""
    found = named(name, "the data")
    sets = found if isinstance(found, Mapping) else dict(inspect.getmembers(found, lambda part: not callable(part)))
    if sets.get("train") is None:
        raise DataError(
            f"the data {name!r} has no 'train'; a dict or an object with train, validation and test is wanted."
        )
    return {key: part.samples if isinstance(part, Windows) else part for key, part in sets.items()}


def part_of(sets: Mapping[str, Any], split: str) -> Data:
    """Return one part of the data; one that is None is not there."""
    if sets.get(split) is None:
        known = ", ".join(key for key in ("train", "validation", "test") if sets.get(key) is not None)
        raise DataError(
            f"the data has no part {split!r}; it has {known}. Choose one of those with --split, or let your data have "
            f"{split!r} too."
        )
    return sets[split]


def example_of(shape: str, dtype: str) -> torch.Tensor:
    """Return a batch of one sample of this shape and type, such as "1x28x28" and "float32"."""
    try:
        sizes = [int(size) for size in shape.replace(",", "x").split("x")]
        return torch.zeros((1, *sizes), dtype=getattr(torch, dtype))
    except (ValueError, AttributeError, TypeError, RuntimeError) as error:
        raise DataError(
            f"--shape {shape} --dtype {dtype} is not understood: give the shape of one sample, such as 1x28x28, and a "
            "torch type, such as float32 or int64."
        ) from error


def places_of(text: str) -> int | list[float | str]:
    """Understand a count ("3"), or depths ("0.2,0.4")."""
    try:
        return int(text) if text.isdigit() else [float(part) for part in text.split(",")]
    except ValueError as error:
        raise DataError(
            f"--at {text} is not understood: give depths such as 0.4 or 0.2,0.4, or a count such as 3. A module is "
            "named with --after."
        ) from error


def labels_of(texts: Sequence[str], names: Sequence[str] | None) -> list[list[int]]:
    """Return the labels that texts like "1,3" or "yes,no" list.

    >>> labels_of(["1,2", "yes"], ["none", "no", "yes"])
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
            f"--positives {' --positives '.join(texts)} is not understood: give numbers of classes with commas between "
            f"them, such as 1,3, {known}."
        ) from error


def one_of(what: str, name: str, table: Mapping[str, Any]) -> Any:
    """Return the table's entry of an option's value."""
    if name not in table:
        raise DataError(f"{what} {name} is not known; known are {', '.join(table)}.")
    return table[name]
