"""A folder of files for each class, ``root/class/*``: which files are in which part, and the label of each class.

With folders ``train`` and ``test``, and perhaps ``validation`` (or ``val``), each of which has the classes, those
are the parts. Without them a share of each class is held out. A file is in one part only; a copy of it under another
name is another file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch

from penstock.datasets.disk import reading
from penstock.datasets.progress import tracked
from penstock.datasets.splits import split
from penstock.errors import DataError

PART_FOLDERS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
"""Which part each of these folders is."""

Files: TypeAlias = Mapping[str, Sequence[Path]]  # class -> its files, sorted


@dataclass(frozen=True)
class HoldOut:
    """The shares of each class's folder to test and to validate with, drawn by a seed."""

    test: float = 0.2
    validation: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class Kind:
    """What the files are: their name in the plural, how the names of the files end, and which folders are no class."""

    plural: str
    endings: tuple[str, ...]
    apart: tuple[str, ...] = ()


def parts_in(root: Path, kind: Kind, hold_out: HoldOut) -> dict[str, Files]:
    """Return the files of each class in train, perhaps validation, and test.

    Raises:
        DataError: when parts or classes are missing, a class is empty, or a part has other classes than train.
    """
    with reading(root):
        folders = {name: root / name for name in PART_FOLDERS if (root / name).is_dir()}
    if folders:
        _check_parts(root, folders)
        names = class_folders(folders["train"], kind)
        return {PART_FOLDERS[name]: files_in(folder, names, kind) for name, folder in folders.items()}
    rest, test = held_out(files_in(root, class_folders(root, kind), kind), hold_out.test, hold_out.seed)
    train, validation = held_out(rest, hold_out.validation / (1 - hold_out.test), hold_out.seed)
    return {"train": train, "validation": validation, "test": test}


def class_folders(folder: Path, kind: Kind) -> tuple[str, ...]:
    """Return the names of the classes in a folder, sorted.

    Raises:
        DataError: when there are fewer than two.
    """
    with reading(folder):
        if not folder.is_dir():
            lack = "is no folder" if folder.exists() else "is not there"
            raise DataError(f"{folder} {lack}: give a folder that has a folder of {kind.plural} for each class.")
        found = [entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."]
        names = tuple(sorted(set(found) - set(kind.apart)))
    if len(names) < 2:
        raise DataError(
            f"{folder} has {len(names)} folders; one of {kind.plural} for each class is wanted, and at least two."
        )
    return names


def files_in(folder: Path, classes: Sequence[str], kind: Kind) -> Files:
    """Find the files of ``folder/class/``, class by class and sorted by name.

    Raises:
        DataError: when there are other classes than these, or one has no file.
    """
    names = class_folders(folder, kind)
    if names != tuple(classes):
        raise DataError(
            f"{folder} has other classes than the training data: {_some(sorted(set(names) ^ set(classes)))} is in one "
            "alone."
        )
    files = {name: _files(folder / name, kind) for name in names}
    for name, inside in files.items():
        if not inside:
            raise DataError(f"{folder / name} has no {kind.plural}; {', '.join(kind.endings)} are read.")
    return files


def held_out(files: Files, share: float, seed: int) -> tuple[Files, Files]:
    """Return what stays and what is held out: a share of each class, so that a small one has its part too.

    Raises:
        DataError: when a class would be missing on one side.
    """
    names, flat = tuple(files), [file for inside in files.values() for file in inside]
    numbers = torch.tensor([number for number, name in enumerate(names) for _ in files[name]])
    sides = split(torch.arange(len(flat)), numbers, share, seed, names=names)
    kept, out = (
        {name: [flat[i] for i in side.x[side.y == number].tolist()] for number, name in enumerate(names)}
        for side in sides
    )
    return kept, out


def label_of(names: Sequence[str], positives: Sequence[str] | None = None) -> dict[str, int]:
    """Return the label of each class: 0 for the background, 1, 2, ... for the positives in the order given.

    >>> label_of(["ant", "bee", "cat"])
    {'ant': 1, 'bee': 0, 'cat': 2}
    >>> label_of(["ant", "bee", "cat"], positives=["bee"])
    {'ant': 0, 'bee': 1, 'cat': 0}
    """
    chosen = tuple(names[::2]) if positives is None else tuple(positives)
    if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) < set(names):
        raise DataError(
            f"classes of interest: {', '.join(chosen) or 'none'}. Name each once, at least one and not all of "
            f"{_some(names)}."
        )
    label = {name: i for i, name in enumerate(chosen, start=1)}
    return {name: label.get(name, 0) for name in names}


def class_names(labels: Mapping[str, int]) -> tuple[str, ...]:
    """Return the name of each label.

    >>> class_names({"ant": 0, "bee": 2, "cat": 1})
    ('background', 'cat', 'bee')
    """
    return ("background", *sorted((name for name in labels if labels[name]), key=labels.__getitem__))


def count_files(root: Path, kind: Kind, read: Callable[[Path], object]) -> dict[str, dict[str, int]]:
    """Read every file of a folder, and return how many each part and each class of it has.

    Raises:
        DataError: when the folder is not in order, or files cannot be read; says how many, and names the first three.
    """
    parts = parts_in(root, kind, HoldOut())
    files = [file for classes in parts.values() for inside in classes.values() for file in inside]
    refused = [said for file in tracked(files, f"reading {kind.plural}") if (said := _refusal(read, file))]
    if refused:
        more = f" And {len(refused) - 3} more." if len(refused) > 3 else ""
        raise DataError(
            f"{len(refused)} of the {len(files)} {kind.plural} are of no use. {' '.join(refused[:3])}{more}"
        )
    return {part: {name: len(inside) for name, inside in classes.items()} for part, classes in parts.items()}


def _check_parts(root: Path, folders: Mapping[str, Path]) -> None:
    if not {"train", "test"} <= set(folders):
        raise DataError(
            f"{root} has {', '.join(folders)}: a folder with parts needs train and test, or leave the parts away to "
            "hold shares out of each class."
        )
    if {"validation", "val"} <= set(folders):
        raise DataError(f"{root} has validation and val, and one such part is wanted: delete or move one of them.")


def _files(folder: Path, kind: Kind) -> list[Path]:
    with reading(folder):
        inside = (e.path for e in os.scandir(folder) if e.name.lower().endswith(kind.endings) and e.is_file())
        return list(map(Path, sorted(inside)))


def _refusal(read: Callable[[Path], object], file: Path) -> str | None:
    try:
        read(file)
    except DataError as error:
        return str(error)
    return None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
