"""Folders with one sub-folder per class, ``root/class/*``: which files are in which split, and the label of each class.

With folders ``train`` and ``val`` (or ``validation``), as ImageNet has them, or ``test``, each with one folder per
class, those are the splits, and what is missing stays missing. Without them a share of each class is held out. Each
file is in one split; identical copies under different names are different files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch

from penstock.datasets.files import reading
from penstock.datasets.progress import tracked
from penstock.datasets.splits import stratified_split
from penstock.errors import DataError

PART_FOLDERS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
"""The split that each of these folders holds."""

Files: TypeAlias = Mapping[str, Sequence[Path]]  # class -> its files, sorted


@dataclass(frozen=True)
class HoldOut:
    """The shares of each class to hold out for testing and validation, drawn with a seed."""

    test: float = 0.2
    validation: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class FileKind:
    """A kind of file: its plural name, its suffixes, and folders that are not classes."""

    plural: str
    suffixes: tuple[str, ...]
    ignored_folders: tuple[str, ...] = ()


def files_by_part(root: Path, kind: FileKind, hold_out: HoldOut) -> dict[str, Files]:
    """Return the files of each class in train, and in test and validation if there are such splits.

    Raises:
        DataError: if splits or classes are missing, a class is empty, or a split has other classes than train.
    """
    with reading(root):
        folders = {name: root / name for name in PART_FOLDERS if (root / name).is_dir()}
    if folders:
        _check_parts(root, folders)
        names = class_folder_names(folders["train"], kind)
        return {PART_FOLDERS[name]: class_files(folder, names, kind) for name, folder in folders.items()}
    files = class_files(root, class_folder_names(root, kind), kind)
    rest, test = hold_out_files(files, hold_out.test, hold_out.seed)
    train, validation = hold_out_files(rest, hold_out.validation / (1 - hold_out.test), hold_out.seed)
    return {"train": train, "validation": validation, "test": test}


def class_folder_names(folder: Path, kind: FileKind) -> tuple[str, ...]:
    """Return the names of the class folders in a folder, sorted; at least two."""
    with reading(folder):
        if not folder.is_dir():
            problem = "is not a folder" if folder.exists() else "does not exist"
            raise DataError(f"{folder} {problem}: expected a folder with one sub-folder of {kind.plural} per class.")
        found = [entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."]
        names = tuple(sorted(set(found) - set(kind.ignored_folders)))
    if len(names) < 2:
        raise DataError(
            f"{folder} has {len(names)} sub-folders, expected at least 2: one folder of {kind.plural} per class."
        )
    return names


def class_files(folder: Path, classes: Sequence[str], kind: FileKind) -> Files:
    """Return the files of ``folder/class/``, sorted by name; the folder must have these classes, and none empty."""
    names = class_folder_names(folder, kind)
    if names != tuple(classes):
        different = _abbreviate(sorted(set(names) ^ set(classes)))
        raise DataError(f"{folder} has different classes from the training data: {different} is only in one of them.")
    files = {name: _list_files(folder / name, kind) for name in names}
    for name, paths in files.items():
        if not paths:
            raise DataError(f"{folder / name} has no {kind.plural}; supported: {', '.join(kind.suffixes)}.")
    return files


def hold_out_files(files: Files, share: float, seed: int) -> tuple[Files, Files]:
    """Return the files that stay and those held out: a share of each class, so that small classes are in both."""
    names, flat = tuple(files), [file for paths in files.values() for file in paths]
    numbers = torch.tensor([number for number, name in enumerate(names) for _ in files[name]])
    sides = stratified_split(torch.arange(len(flat)), numbers, share, seed, names=names)
    kept, held_out = (
        {name: [flat[i] for i in side.x[side.y == number].tolist()] for number, name in enumerate(names)}
        for side in sides
    )
    return kept, held_out


def class_labels(names: Sequence[str], positives: Sequence[str] | None = None) -> dict[str, int]:
    """Return the label of each class: 0 for the background, 1, 2, ... for the positives in the given order.

    >>> class_labels(["ant", "bee", "cat"])
    {'ant': 1, 'bee': 0, 'cat': 2}
    >>> class_labels(["ant", "bee", "cat"], positives=["bee"])
    {'ant': 0, 'bee': 1, 'cat': 0}
    """
    chosen = tuple(names[::2]) if positives is None else tuple(positives)
    if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) < set(names):
        raise DataError(
            f"expected some of the classes as positives, each once and not all, got {', '.join(chosen) or 'none'}; "
            f"the classes are {_abbreviate(names)}."
        )
    label = {name: i for i, name in enumerate(chosen, start=1)}
    return {name: label.get(name, 0) for name in names}


def label_names(labels: Mapping[str, int]) -> tuple[str, ...]:
    """Return the name of each label.

    >>> label_names({"ant": 0, "bee": 2, "cat": 1})
    ('background', 'cat', 'bee')
    """
    return ("background", *sorted((name for name in labels if labels[name]), key=labels.__getitem__))


def count_files(root: str | Path, kind: FileKind, read: Callable[[Path], object]) -> dict[str, dict[str, int]]:
    """Read every file of a folder, and return the number in each split and class.

    Raises:
        DataError: if the layout is wrong or files cannot be read; counts and names them.
    """
    parts = files_by_part(Path(root).expanduser(), kind, HoldOut())
    files = [file for classes in parts.values() for paths in classes.values() for file in paths]
    errors = []
    for file in tracked(files, f"reading {kind.plural}"):
        try:
            read(file)
        except DataError as error:
            errors.append(str(error))
    if errors:
        raise DataError(f"{len(errors)} of {len(files)} {kind.plural} cannot be read. {' '.join(errors)}")
    return {part: {name: len(paths) for name, paths in classes.items()} for part, classes in parts.items()}


def _check_parts(root: Path, folders: Mapping[str, Path]) -> None:
    if "train" not in folders or len(folders) < 2:
        raise DataError(
            f"{root} has {', '.join(folders)}, expected train and at least one of val and test; or remove the split "
            "folders to hold out a share of each class."
        )
    if {"validation", "val"} <= set(folders):
        raise DataError(f"{root} has both validation and val: delete or move one of them.")


def _list_files(folder: Path, kind: FileKind) -> list[Path]:
    with reading(folder):
        paths = (e.path for e in os.scandir(folder) if e.name.lower().endswith(kind.suffixes) and e.is_file())
        return list(map(Path, sorted(paths)))


def _abbreviate(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
