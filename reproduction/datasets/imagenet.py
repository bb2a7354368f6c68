"""ImageNet-2012 under the paper's mapping: of the 1,000 sorted synsets the even ones are of interest.

1,281,167 training and 50,000 validation photographs (Russakovsky et al., arXiv:1409.0575). The validation part is what
everybody tests on; it is ``test`` here. The archives need an account at image-net.org and may be used for research
and teaching without profit. This is the layout that is read:

    train/n01440764/*.JPEG      ILSVRC2012_img_train.tar, and the tar of each synset in it unpacked into a folder
    val/n01440764/*.JPEG        ILSVRC2012_img_val.tar, sorted into synsets; or else
    val/ILSVRC2012_val_*.JPEG   as unpacked, with val_labels.txt beside train and val

A line of ``val_labels.txt`` is the name of a file and its synset: ``ILSVRC2012_val_00000001.JPEG n01751748``. The
official ``ILSVRC2012_validation_ground_truth.txt`` is not read: its numbers follow an order of their own, which
only the development kit's ``meta.mat`` tells.
"""

import os
from pathlib import Path

import torch

from penstock.datasets.class_folders import class_folders, class_names, files_in, held_out, label_of
from penstock.datasets.disk import is_file, read_text, reading
from penstock.datasets.fetch.addresses import IMAGENET
from penstock.datasets.fetch.places import find
from penstock.datasets.image_folder import PICTURES, pictures_of
from penstock.datasets.images import CentreCrop, Pictures, RandomCrop
from penstock.datasets.splits import Splits
from penstock.errors import DataError

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
    """Find ImageNet's photographs; each is read when it is asked for.

    Training sees a random part of a photograph, mirrored every other time; validation and testing see the middle after
    the shorter side became 8/7 of ``size`` long: 256 for 224.

    Args:
        folder: has ``train`` and ``val``; by default ``imagenet`` in the cache.
        size: the side of the square that the network sees, in pixels.
        val_labels: the synset of each file of a flat ``val``; by default ``val_labels.txt`` in the folder.
        classes: how many synsets there must be; fewer for a subset of ImageNet.
        validation_share: the share of each synset's training files to validate with; 0 for no such part.
        seed: another seed holds out other files.

    Raises:
        DataError: when a part is missing, has other synsets, a photograph of ``val`` has no label, or the share is not
            possible.
    """
    root = find(IMAGENET, folder).at
    synsets = class_folders(root / "train", PICTURES)
    if len(synsets) != classes:
        raise DataError(
            f"{root / 'train'} has {len(synsets)} synsets, and ImageNet-2012 has {classes}. Unpack what is missing, or "
            f"give classes={len(synsets)} for a subset."
        )
    labels = label_of(synsets)
    middle = CentreCrop(size, resize=round(size * 8 / 7))
    test = _test_part(root, Path(val_labels) if val_labels else root / "val_labels.txt", labels, middle)
    files, validation = files_in(root / "train", synsets, PICTURES), None
    if validation_share != 0:
        files, held = held_out(files, validation_share, seed)
        validation = pictures_of(held, labels, middle)
    return Splits(pictures_of(files, labels, RandomCrop(size)), test, class_names(labels), validation)


def read_val_labels(file: Path) -> dict[str, str]:
    """Read lines of a file's name and its synset.

    Raises:
        DataError: when the file is not there, or a line is something else.
    """
    if not is_file(file):
        raise DataError(
            f"the photographs of val lie flat, and {file} is not there. Sort them into a folder for each synset, or "
            "write that file: a line `ILSVRC2012_val_00000001.JPEG n01751748` for each."
        )
    synset_of = {}
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        words = line.split()
        if len(words) != 2:
            raise DataError(
                f"line {number} of {file} is {line[:60]!r}; the name of a file and its synset are wanted, such as "
                "`ILSVRC2012_val_00000001.JPEG n01751748`. The official list of numbers is not read."
            )
        synset_of[words[0]] = words[1]
    return synset_of


def _test_part(root: Path, val_labels: Path, labels: dict[str, int], view: CentreCrop) -> Pictures:
    val = root / "val"
    with reading(val):
        flat = sorted(e.name for e in os.scandir(val) if e.name.startswith("ILSVRC2012_val_") and e.is_file())
    if not flat:
        return pictures_of(files_in(val, tuple(labels), PICTURES), labels, view)
    synset_of = read_val_labels(val_labels)
    for name in flat:
        if synset_of.get(name) not in labels:
            raise DataError(
                f"{val_labels} gives {name} the synset {synset_of.get(name)}, which train does not have. Give each "
                "photograph of val one of train's synsets."
            )
    targets = torch.tensor([labels[synset_of[name]] for name in flat])
    return Pictures([val / name for name in flat], targets, view)
