"""Any folder of pictures: ``root/class/*.png`` or ``*.jpg``.

With folders ``train`` and ``test``, and perhaps ``validation`` (or ``val``), each of which has the classes, those
are the parts. Without them a share of each folder is held out. Pictures are read when they are asked for, so the
folder may be larger than the memory.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from penstock.data.pictures import IMAGENET_STANDARD, CentreCrop, Pictures, Standard, View
from penstock.data.splits import Splits, split
from penstock.errors import DataError

ENDINGS = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True)
class HoldOut:
    """The shares of each class's folder to test and to validate with, drawn by a seed."""

    test: float = 0.2
    validation: float = 0.1
    seed: int = 0


def image_folder(
    root: str | Path,
    *,
    size: int,
    positives: Sequence[str] | None = None,
    train_view: View | None = None,
    standard: Standard = IMAGENET_STANDARD,
    hold_out: HoldOut = HoldOut(),
) -> Splits:
    """Find the pictures of a folder; each is read when it is asked for.

    Args:
        root: has a folder for each class; or ``train``, ``test`` and perhaps ``validation`` that have them.
        size: the side of the square that the network sees, in pixels: the middle of the picture.
        positives: the classes of interest, labels 1, 2, ...; all others are the background. By default the paper's
            mapping: of the sorted classes, the first, third, fifth and so on.
        train_view: what is seen of a picture in training; by default the middle too. `RandomCrop` augments.
        standard: what the channels are standardised with.
        hold_out: the shares held out where the folder has no parts of its own.

    Raises:
        DataError: when there are no pictures, a class of a part is unknown or empty, or ``positives`` make no sense.
    """
    root, middle = Path(root).expanduser(), CentreCrop(size)
    parts = {name: root / name for name in ("train", "test", "validation", "val") if (root / name).is_dir()}
    if parts and not {"train", "test"} <= set(parts):
        raise DataError(
            f"{root} has {', '.join(parts)}: a folder with parts needs train and test, or leave the parts away to hold "
            "shares out of each class."
        )
    names = class_folders(parts.get("train", root))
    labels = label_of(names, positives)
    class_names = ("background", *sorted((n for n in names if labels[n]), key=labels.__getitem__))
    if not parts:
        rest, test = hold_out_files(pictures_in(root, labels, middle, standard), hold_out.test, hold_out.seed)
        train, validation = hold_out_files(rest, hold_out.validation / (1 - hold_out.test), hold_out.seed)
        return Splits(train.seen_through(train_view or middle), test, class_names, validation)
    found = {
        part: pictures_in(folder, labels, (train_view or middle) if part == "train" else middle, standard)
        for part, folder in parts.items()
    }
    return Splits(found["train"], found["test"], class_names, found.get("validation", found.get("val")))


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the names of the classes in a folder, sorted.

    Raises:
        DataError: when there are fewer than two.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not there: give a folder that has a folder of pictures for each class.")
    names = tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."))
    if len(names) < 2:
        raise DataError(
            f"{folder} has {len(names)} folders; one of pictures for each class is wanted, and at least two."
        )
    return names


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


def pictures_in(folder: Path, labels: dict[str, int], view: View, standard: Standard = IMAGENET_STANDARD) -> Pictures:
    """Find the pictures of ``folder/class/``, class by class and sorted by name.

    Raises:
        DataError: when the classes are not those of ``labels``, or one has no picture.
    """
    names = class_folders(folder)
    if set(names) != set(labels):
        raise DataError(
            f"{folder} has other classes than the training data: {_some(sorted(set(names) ^ set(labels)))} is in one "
            "alone."
        )
    files: list[Path] = []
    targets: list[int] = []
    for name in names:
        inside = sorted(e.path for e in os.scandir(folder / name) if e.name.lower().endswith(ENDINGS) and e.is_file())
        if not inside:
            raise DataError(f"{folder / name} has no pictures; {', '.join(ENDINGS)} are read.")
        files += map(Path, inside)
        targets += [labels[name]] * len(inside)
    return Pictures(files, torch.tensor(targets), view, standard)


def hold_out_files(pictures: Pictures, share: float, seed: int) -> tuple[Pictures, Pictures]:
    """Return what stays and what is held out: a share of each folder, so that a small class has its part too.

    Raises:
        DataError: when a folder would be missing on one side.
    """
    names = sorted({file.parent.name for file in pictures.files})
    number = {name: i for i, name in enumerate(names)}
    folders = torch.tensor([number[file.parent.name] for file in pictures.files])
    kept, held_out = split(torch.arange(len(pictures)), folders, share, seed, names=names)
    return pictures.chosen(kept.x), pictures.chosen(held_out.x)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
