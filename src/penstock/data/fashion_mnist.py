"""Fashion-MNIST under the paper's mapping: even classes are of interest, odd ones are background.

60,000 and 10,000 grey images of 28x28 in ten balanced classes (Xiao et al., arXiv:1708.07747, MIT licence).
The paper keeps the classes of even number as positives and maps those of odd number to one background class,
which makes positives and negatives equally many (section 4).

The four original files are read as they are. Debian ships them as the package ``dataset-fashion-mnist``;
whoever has them elsewhere gives the folder.
"""

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from penstock.data.splits import Labelled, Splits
from penstock.errors import DataError

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")

SHA256 = {
    "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
    "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
}

MEAN, STD = 0.28604, 0.35302
"""Of the training images, in the scale from 0 to 1."""

CLASS_NAMES = ("background", "T-shirt/top", "Pullover", "Coat", "Shirt", "Bag")


def fashion_mnist(folder: str | Path | None = None) -> Splits:
    """Read Fashion-MNIST.

    Args:
        folder: where the four original .gz files are; by default where Debian's package puts them.

    Raises:
        DataError: when a file is missing or is not the original one.
    """
    folder = DEBIAN_FOLDER if folder is None else Path(folder)
    for name in SHA256:
        _check_file(folder / name)
    return Splits(_read_part(folder, "train"), _read_part(folder, "t10k"), CLASS_NAMES)


def read_idx(file: Path) -> np.ndarray:
    """Read the bytes of a gzipped idx file, the format of MNIST and its relatives.

    An idx file is a magic number (0, 0, 8 for bytes, the number of dimensions), the size of each dimension as
    a big-endian 32-bit number, and the bytes themselves.

    Raises:
        DataError: when the file is cut short, is not idx, or its length is not what its header says.
    """
    try:
        content = gzip.decompress(file.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{file} is not a whole gzip file ({error}): fetch it again.") from error
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


def to_background(labels: Tensor) -> Tensor:
    """Apply the paper's mapping: odd classes become 0, the even ones 0, 2, 4, ... become 1, 2, 3, ...

    >>> to_background(torch.arange(10)).tolist()
    [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    """
    return torch.where(labels % 2 == 0, labels // 2 + 1, 0)


def _check_file(file: Path) -> None:
    if not file.is_file():
        raise DataError(
            f"Fashion-MNIST needs {', '.join(SHA256)} in {file.parent}, and {file.name} is not there. Install Debian's "
            "package dataset-fashion-mnist, or give a folder with the four original files."
        )
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != SHA256[file.name]:
        raise DataError(
            f"{file} is damaged or another data set: its sha256 is {digest}, the original's is {SHA256[file.name]}. "
            "Fetch it again (Debian package dataset-fashion-mnist)."
        )


def _read_part(folder: Path, part: str) -> Labelled:
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")  # (n, 28, 28)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")  # (n,)
    x = torch.from_numpy(images.astype(np.float32)).unsqueeze(1)
    y = torch.from_numpy(labels.astype(np.int64))
    return Labelled((x / 255 - MEAN) / STD, to_background(y))
