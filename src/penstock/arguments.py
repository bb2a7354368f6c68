"""Understand what was typed at the command line: names of Python objects, shapes, places, folders.

Each function takes the text and returns what it stands for, or says what is allowed.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from penstock.data.batches import Data
from penstock.data.wrist import Windows
from penstock.errors import DataError


def named(name: str, what: str) -> Any:
    """Return what a name like package.module:function stands for, called if it can be."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise DataError(
            f"{what} {name!r} is not understood: give package.module:function, such as mypackage.nets:wake_word."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{what} {name!r}: no module {error.name!r}. It is looked for in the working directory ({os.getcwd()}) and "
            "among installed packages."
        ) from error
    except AttributeError as error:
        raise DataError(f"{what} {name!r}: the module {module} has no {attribute!r}.") from error
    return found() if callable(found) and not isinstance(found, torch.nn.Module) else found


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
    if "train" not in sets:
        raise DataError(
            f"the data {name!r} has no 'train'; a dict or an object with train, validation and test is wanted."
        )
    return {key: part.samples if isinstance(part, Windows) else part for key, part in sets.items()}


def part_of(sets: Mapping[str, Any], split: str) -> Data:
    """Return one part of the data."""
    if split not in sets:
        known = ", ".join(key for key in ("train", "validation", "test") if key in sets)
        raise DataError(f"the data has no part {split!r}; it has {known}.")
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


def folder_of(text: str) -> tuple[str, Path]:
    """Return a problem and its folder, given as problem=folder."""
    problem, equals, folder = text.partition("=")
    if not equals or not folder:
        raise DataError(f"--data {text} is not understood: give problem=folder, such as cifar10=sets/cifar10.")
    return problem, Path(folder)


def one_of(what: str, name: str, table: Mapping[str, Any]) -> Any:
    """Return the table's entry of an option's value."""
    if name not in table:
        raise DataError(f"{what} {name} is not known; known are {', '.join(table)}.")
    return table[name]
