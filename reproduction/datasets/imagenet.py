"""ImageNet-2012 with the paper's mapping: of the 1,000 sorted synsets the even ones are positives.

1,281,167 training and 50,000 validation photographs (Russakovsky et al., arXiv:1409.0575). The validation part, on
which everybody tests, is ``test`` here. The archives require an account at image-net.org and may be used for
non-commercial research and teaching. Layout:

    train/n01440764/*.JPEG      ILSVRC2012_img_train.tar, with the tar of each synset unpacked into a folder
    val/n01440764/*.JPEG        ILSVRC2012_img_val.tar, sorted into synsets; or else
    val/ILSVRC2012_val_*.JPEG   as unpacked, with val_labels.txt beside train and val

A line of ``val_labels.txt`` is a file name and its synset: ``ILSVRC2012_val_00000001.JPEG n01751748``. The official
``ILSVRC2012_validation_ground_truth.txt`` is not supported: its numbers follow an order that only the development kit's
``meta.mat`` gives.
"""

import os
from pathlib import Path

import torch

from penstock.datasets.class_folders import (
    class_files,
    class_folder_names,
    class_labels,
    hold_out_files,
    label_names,
)
from penstock.datasets.fetch.locations import find_dataset
from penstock.datasets.files import is_file, read_text, reading
from penstock.datasets.image_files import IMAGES, ImageDataset, RandomCrop, image_dataset
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from penstock.runtime.images.config import ImageConfig
from reproduction.datasets.catalogue import IMAGENET

CLASSES = 1000


def imagenet(
    folder: str | Path | None = None,
    *,
    size: int = 224,
    val_labels: str | Path | None = None,
    classes: int = CLASSES,
    validation_share: float = 0.0,
    seed: int = 0,
) -> Splits:
    """Load ImageNet; each photograph is read on access.

    Training uses random crops, mirrored half of the time; validation and testing use the centre after the shorter side
    is resized to 8/7 of ``size``: 256 for 224.

    Args:
        folder: has ``train`` and ``val``; default: ``imagenet`` in the cache.
        size: side of the square network input, in pixels.
        val_labels: the synset of each file of a flat ``val``; default: ``val_labels.txt`` in the folder.
        classes: expected number of synsets; fewer for a subset of ImageNet.
        validation_share: share of each synset's training files to hold out for validation; 0 for no validation split.
        seed: another seed holds out other files.

    Raises:
        DataError: if a split is missing or has other synsets, a photograph of ``val`` has no label, or the share is
            invalid.
    """
    root = find_dataset(IMAGENET, folder).path
    synsets = class_folder_names(root / "train", IMAGES)
    if len(synsets) != classes:
        raise DataError(
            f"expected {classes} synsets in {root / 'train'}, found {len(synsets)}. Unpack the missing ones, or pass "
            f"classes={len(synsets)} for a subset."
        )
    labels = class_labels(synsets)
    image = ImageConfig(size, size, share=7 / 8)
    test = _test_part(root, Path(val_labels) if val_labels else root / "val_labels.txt", labels, image)
    files, validation = class_files(root / "train", synsets, IMAGES), None
    if validation_share != 0:
        files, held = hold_out_files(files, validation_share, seed)
        validation = image_dataset(held, labels, image)
    return Splits(image_dataset(files, labels, image, RandomCrop()), test, label_names(labels), validation, image)


def read_val_labels(file: Path) -> dict[str, str]:
    """Read lines of a file name and its synset.

    Raises:
        DataError: if the file does not exist, or a line has another form.
    """
    if not is_file(file):
        raise DataError(
            f"{file} does not exist, and the photographs of val are not in one folder per synset. Sort them into "
            "folders, or write that file with lines like `ILSVRC2012_val_00000001.JPEG n01751748`."
        )
    synset_of = {}
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        words = line.split()
        if len(words) != 2:
            raise DataError(
                f"expected a file name and its synset in line {number} of {file}, such as "
                f"`ILSVRC2012_val_00000001.JPEG n01751748`, got {line[:60]!r}."
            )
        synset_of[words[0]] = words[1]
    return synset_of


def _test_part(root: Path, val_labels: Path, labels: dict[str, int], image: ImageConfig) -> ImageDataset:
    val = root / "val"
    with reading(val):
        flat = sorted(e.name for e in os.scandir(val) if e.name.startswith("ILSVRC2012_val_") and e.is_file())
    if not flat:
        return image_dataset(class_files(val, tuple(labels), IMAGES), labels, image)
    synset_of = read_val_labels(val_labels)
    for name in flat:
        if synset_of.get(name) not in labels:
            raise DataError(
                f"{val_labels} gives {name} the synset {synset_of.get(name)}, which is not in train. Every photograph "
                "of val needs one of train's synsets."
            )
    targets = torch.tensor([labels[synset_of[name]] for name in flat])
    return ImageDataset([val / name for name in flat], targets, image)
