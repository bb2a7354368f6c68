"""Fashion-MNIST: the idx format, damaged files, and the real files where installed."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.datasets.fetch.locations import locate
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from reproduction.datasets.catalogue import FASHION_MNIST
from reproduction.datasets.fashion_mnist import SHA256, fashion_mnist, read_idx

needs_fashion_mnist = pytest.mark.skipif(
    locate(FASHION_MNIST) is None, reason="needs Debian's dataset-fashion-mnist: make fashion-mnist"
)


def idx(values: np.ndarray, magic: bytes = b"\x00\x00\x08") -> bytes:
    header = magic + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(header + values.astype(np.uint8).tobytes())


@pytest.fixture
def small_folder(tmp_path: Path) -> Path:
    """Fashion-MNIST's four files, with seven images in each part."""
    for name in SHA256:
        values = np.arange(7 * 28 * 28).reshape(7, 28, 28) if "images" in name else np.arange(7)
        (tmp_path / name).write_bytes(idx(values))
    return tmp_path


def test_idx_reads_what_was_written(small_folder: Path) -> None:
    images = read_idx(small_folder / "train-images-idx3-ubyte.gz")
    assert np.array_equal(images, (np.arange(7 * 28 * 28) % 256).reshape(7, 28, 28))


def content_sums(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256(gzip.decompress((folder / name).read_bytes())).hexdigest() for name in SHA256}


def test_the_layout_is_read_and_mapped(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reproduction.datasets.fashion_mnist.SHA256", content_sums(small_folder))
    data = fashion_mnist(small_folder)
    assert data.train.x.shape == (7, 1, 28, 28)
    assert data.train.y.tolist() == [1, 0, 2, 0, 3, 0, 4]
    assert data.train.x[0, 0, 0, 5] == pytest.approx((5 / 255 - 0.28604) / 0.35302, rel=1e-5)


def test_how_a_file_is_packed_makes_no_difference(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's .gz files and the official ones hold the same bytes under other headers."""
    monkeypatch.setattr("reproduction.datasets.fashion_mnist.SHA256", content_sums(small_folder))
    before = fashion_mnist(small_folder)
    file = small_folder / "t10k-images-idx3-ubyte.gz"
    packed = gzip.compress(gzip.decompress(file.read_bytes()), compresslevel=1, mtime=1_504_176_627)
    assert packed != file.read_bytes()
    file.write_bytes(packed)
    assert torch.equal(fashion_mnist(small_folder).test.x, before.test.x)


def test_a_missing_folder_says_where_it_looked_and_how_to_get_the_data(tmp_path: Path) -> None:
    text = r"nowhere .*`python -m reproduction data fetch fashion-mnist` .*31 MB.*dataset-fashion-mnist.*train-images"
    with pytest.raises(DataError, match=text):
        fashion_mnist(tmp_path / "nowhere")


def test_one_missing_file_is_named(small_folder: Path) -> None:
    (small_folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"\(lacks t10k-labels-idx1-ubyte.gz\)"):
        fashion_mnist(small_folder)


def test_a_wrong_checksum_is_refused(small_folder: Path) -> None:
    text = r"sha256 c59f468a.*got [0-9a-f]{64}"
    with pytest.raises(DataError, match=text):
        fashion_mnist(small_folder)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (idx(np.arange(1000))[:-40], r"gzip"),
        (b"no gzip at all", r"gzip"),
        (
            idx(np.arange(9), magic=b"\x00\x00\x0d"),
            r"00 00 08.*00 00 0d 01",
        ),
        (gzip.compress(b""), r"00 00 08"),
        (gzip.compress(b"\x00\x00\x08\x03\x00\x00"), r"16 bytes, got 6"),
        (
            gzip.compress(b"\x00\x00\x08\x01\x00\x00\x00\x05abcd"),
            r"\(5,\).* 4 values",
        ),
    ],
    ids=["truncated", "no gzip", "magic", "empty", "header", "count"],
)
def test_a_damaged_idx_file_says_what_is_wrong(tmp_path: Path, content: bytes, text: str) -> None:
    file = tmp_path / "train-labels-idx1-ubyte.gz"
    file.write_bytes(content)
    with pytest.raises(DataError, match=text):
        read_idx(file)


@pytest.fixture(scope="module")
def fashion() -> Splits:
    return fashion_mnist()


@needs_fashion_mnist
def test_fashion_mnist_is_whole_and_balanced(fashion: Splits) -> None:
    assert fashion.train.x.shape == (60_000, 1, 28, 28)
    assert fashion.test.x.shape == (10_000, 1, 28, 28)
    assert fashion.train.y.bincount().tolist() == [30_000] + [6_000] * 5
    assert fashion.test.y.bincount().tolist() == [5_000] + [1_000] * 5
    assert len(fashion.class_names) == 6
    assert fashion.train.x.dtype == torch.float32


@needs_fashion_mnist
def test_fashion_mnist_is_standardised(fashion: Splits) -> None:
    assert fashion.train.x.mean().item() == pytest.approx(0, abs=1e-4)
    assert fashion.train.x.std().item() == pytest.approx(1, abs=1e-4)
