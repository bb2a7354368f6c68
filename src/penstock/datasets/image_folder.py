"""Any folder of pictures: ``root/class/*.png`` or ``*.jpg``.

With folders ``train`` and ``test``, and perhaps ``validation`` (or ``val``), each of which has the classes, those
are the parts. Without them a share of each folder is held out. Pictures are read when they are asked for, so the
folder may be larger than the memory.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from penstock.datasets.class_folders import Files, HoldOut, Kind, class_names, count_files, label_of, parts_in
from penstock.datasets.images import IMAGENET_STANDARD, CentreCrop, Pictures, Standard, View, read_rgb
from penstock.datasets.splits import Splits

PICTURES = Kind("pictures", (".png", ".jpg", ".jpeg"))


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
    middle = CentreCrop(size)
    parts = parts_in(Path(root).expanduser(), PICTURES, hold_out)
    labels = label_of(tuple(parts["train"]), positives)
    found = {part: pictures_of(files, labels, middle, standard) for part, files in parts.items()}
    train = found["train"].seen_through(train_view or middle)
    return Splits(train, found["test"], class_names(labels), found.get("validation"))


def pictures_of(
    files: Files, labels: Mapping[str, int], view: View, standard: Standard = IMAGENET_STANDARD
) -> Pictures:
    """Return the pictures of each class, class by class, with the class's label."""
    targets = [labels[name] for name, inside in files.items() for _ in inside]
    return Pictures([file for inside in files.values() for file in inside], torch.tensor(targets), view, standard)


def count_pictures(root: str | Path) -> dict[str, dict[str, int]]:
    """Read every picture of a folder, and return how many each part and each class of it has.

    Raises:
        DataError: when the folder is not in order, or pictures are damaged; names them.
    """
    return count_files(Path(root).expanduser(), PICTURES, lambda file: read_rgb(file, str(file)))
