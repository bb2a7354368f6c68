"""Fashion-MNIST under the paper's mapping: even classes are of interest, odd ones are background.

60,000 and 10,000 grey images of 28x28 in ten balanced classes (Xiao et al., arXiv:1708.07747, MIT licence).
The paper keeps the classes of even number as positives and maps those of odd number to one background class,
which makes positives and negatives equally many (section 4).

The four original files are read as they are: Debian's (package ``dataset-fashion-mnist``), those that
``penstock data fetch fashion-mnist`` downloads, or those in a folder of one's own. What is checked is what is
inside the .gz files, for Debian's differ from the official ones in their headers.
"""

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
import torch

from penstock.datasets.disk import read_bytes
from penstock.datasets.fetch.addresses import FASHION_MNIST
from penstock.datasets.fetch.places import find
from penstock.datasets.splits import Labelled, Splits, to_background
from penstock.errors import DataError

SHA256 = {
    "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""Of what is inside."""

MEAN, STD = 0.28604, 0.35302
"""Of the training images, in the scale from 0 to 1."""

CLASS_NAMES = ("background", "T-shirt/top", "Pullover", "Coat", "Shirt", "Bag")


def fashion_mnist(folder: str | Path | None = None) -> Splits:
    """Read Fashion-MNIST.

    Args:
        folder: where the four original .gz files are; by default the cache, or where Debian's package puts them.

    Raises:
        DataError: when a file is missing or is not the original one.
    """
    at = find(FASHION_MNIST, folder).at
    return Splits(_read_part(at, "train"), _read_part(at, "t10k"), CLASS_NAMES)


def read_idx(file: Path, *, sha256: str | None = None) -> np.ndarray:
    """Read the bytes of a gzipped idx file, the format of MNIST and its relatives.

    An idx file is a magic number (0, 0, 8 for bytes, the number of dimensions), the size of each dimension as
    a big-endian 32-bit number, and the bytes themselves.

    Args:
        file: the .gz file.
        sha256: what its content must add up to, unpacked; by default anything.

    Raises:
        DataError: when the file is cut short, is not the one meant, is not idx, or its length is not what its header
            says.
    """
    content = _unpacked(file, sha256)
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataError(
            f"{file} starts with {content[:4].hex(' ')}, and an idx file of bytes with 00 00 08 and the number of "
            f"dimensions: give one of the files {', '.join(SHA256)}."
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{file} ends within its header, after {len(content)} bytes of {start}: fetch it again.")
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    values = np.frombuffer(content, np.uint8, offset=start)
    if values.size != np.prod(shape, dtype=np.int64):
        raise DataError(f"{file} holds {values.size} values, and its header says {shape}: fetch it again.")
    return values.reshape(shape)


def _unpacked(file: Path, sha256: str | None) -> bytes:
    try:
        content = gzip.decompress(read_bytes(file))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{file} is not a whole gzip file ({error}): fetch it again.") from error
    digest = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, digest):
        raise DataError(
            f"{file} is damaged or another data set: the sha256 of its content is {digest}, the original's is "
            f"{sha256}. Delete it and get it again: {FASHION_MNIST.advice}."
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
