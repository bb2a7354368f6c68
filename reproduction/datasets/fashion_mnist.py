"""Fashion-MNIST with the paper's mapping: even classes are positives, odd ones the background.

60,000 and 10,000 grey images of 28x28 in ten balanced classes (Xiao et al., arXiv:1708.07747, MIT licence).
The paper keeps the even classes as positives and maps the odd ones to one background class, so that there are as many
positives as negatives (section 4).

The four original files are read from Debian's package ``dataset-fashion-mnist``, from the cache (``python -m
reproduction data fetch fashion-mnist``), or from a folder. The checksums are of the uncompressed content, because
Debian's .gz files differ from the official ones in their headers.
"""

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
import torch

from penstock.datasets.fetch.locations import find_dataset
from penstock.datasets.files import read_bytes
from penstock.datasets.splits import Labelled, Splits
from penstock.errors import DataError
from reproduction.datasets.catalogue import FASHION_MNIST
from reproduction.datasets.labels import to_background

SHA256 = {
    "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""Of the uncompressed content."""

MEAN, STD = 0.28604, 0.35302
"""Of the training images, on a scale from 0 to 1."""

CLASS_NAMES = ("background", "T-shirt/top", "Pullover", "Coat", "Shirt", "Bag")


def fashion_mnist(folder: str | Path | None = None) -> Splits:
    """Load Fashion-MNIST.

    Args:
        folder: has the four original .gz files; default: the cache, or the folder of Debian's package.

    Raises:
        DataError: if a file is missing or not the original.
    """
    path = find_dataset(FASHION_MNIST, folder).path
    return Splits(_read_part(path, "train"), _read_part(path, "t10k"), CLASS_NAMES)


def read_idx(file: Path, *, sha256: str | None = None) -> np.ndarray:
    """Read the bytes of a gzipped idx file, the format of MNIST and its relatives.

    An idx file is a magic number (0, 0, 8 for bytes, the number of dimensions), the size of each dimension as
    a big-endian 32-bit number, and the bytes themselves.

    Args:
        file: the .gz file.
        sha256: of its uncompressed content; None to accept any.

    Raises:
        DataError: if the file is truncated, has another checksum, is not idx, or does not match its header.
    """
    content = _decompress(file, sha256)
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataError(
            f"expected an idx file that starts with 00 00 08, {file} starts with {content[:4].hex(' ')}: use the files "
            f"{', '.join(SHA256)}."
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{file} is truncated: expected a header of {start} bytes, got {len(content)}. Fetch it again.")
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    values = np.frombuffer(content, np.uint8, offset=start)
    if values.size != np.prod(shape, dtype=np.int64):
        raise DataError(f"expected shape {shape} in {file}, got {values.size} values: fetch it again.")
    return values.reshape(shape)


def _decompress(file: Path, sha256: str | None) -> bytes:
    try:
        content = gzip.decompress(read_bytes(file))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{file} is not a complete gzip file ({error}): fetch it again.") from error
    digest = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, digest):
        raise DataError(
            f"{file} is damaged or another data set: expected sha256 {sha256} of its content, got {digest}. Delete "
            f"it and fetch it again: {FASHION_MNIST.advice}."
        )
    return content


def _read_part(folder: Path, part: str) -> Labelled:
    images, labels = (
        read_idx(folder / name, sha256=SHA256[name])
        for name in (f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz")
    )
    x = torch.from_numpy(images.astype(np.float32)).unsqueeze(1)  # (n, 28, 28) -> (n, 1, 28, 28)
    y = torch.from_numpy(labels.astype(np.int64))
    return Labelled((x / 255 - MEAN) / STD, to_background(y))
