"""The data sets: laws of the splits, what a damaged file says, and the real files where installed."""

import gzip
import hashlib
import pickle
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock.datasets.fetch.addresses import FASHION_MNIST, WRIST
from penstock.datasets.fetch.places import look
from penstock.datasets.splits import Splits, split, stream, with_validation
from penstock.datasets.wrist import Windows, Wrist, read_recordings, wrist
from penstock.errors import DataError
from reproduction.datasets.fashion_mnist import SHA256, fashion_mnist, read_idx

needs_fashion_mnist = pytest.mark.skipif(
    look(FASHION_MNIST) is None, reason="needs Debian's dataset-fashion-mnist: make fashion-mnist"
)
needs_seglearn = pytest.mark.skipif(
    find_spec("seglearn") is None, reason="needs the wrist data: pip install --no-deps seglearn"
)

# --- splits


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.tensor([0] * 500 + [1] * 40 + [2] * 60)[torch.randperm(600)]


def test_a_split_is_a_partition_and_keeps_pairs_together(labels: torch.Tensor) -> None:
    x = torch.arange(600)
    kept, held_out = split(x, labels, 0.25, seed=3)
    assert torch.equal(torch.cat([kept.x, held_out.x]).sort().values, x)
    assert torch.equal(kept.y, labels[kept.x])
    assert torch.equal(held_out.y, labels[held_out.x])


def test_a_split_is_stratified(labels: torch.Tensor) -> None:
    _, held_out = split(torch.arange(600), labels, 0.25, seed=3)
    assert held_out.y.bincount().tolist() == [125, 10, 15]


def test_a_split_depends_on_its_seed_alone(labels: torch.Tensor) -> None:
    x = torch.arange(600)
    first = split(x, labels, 0.25, seed=3)[1].x
    torch.manual_seed(99)
    assert torch.equal(first, split(x, labels, 0.25, seed=3)[1].x)
    assert not torch.equal(first, split(x, labels, 0.25, seed=4)[1].x)


def test_a_split_that_would_lose_a_class_is_refused() -> None:
    y = torch.tensor([0] * 10 + [1])
    with pytest.raises(DataError, match=r"class 1 has 1 samples.*needs a sample on both sides"):
        split(y, y, 0.3, seed=0)


def test_a_split_checks_its_arguments(labels: torch.Tensor) -> None:
    with pytest.raises(DataError, match="599 samples came with 600 labels"):
        split(torch.arange(599), labels, 0.2, seed=0)
    with pytest.raises(DataError, match=r"hold out is 1.0: it must lie between 0 and 1"):
        split(labels, labels, 1.0, seed=0)


@pytest.mark.parametrize("positive_share", [0.1, 0.25, 0.5])
def test_a_stream_has_the_share_it_was_asked_for(labels: torch.Tensor, positive_share: float) -> None:
    drawn = stream(labels, positive_share, 100, seed=1)
    assert (labels[drawn] > 0).sum() == round(100 * positive_share)
    assert len(drawn.unique()) == len(drawn) == 100


def test_a_stream_takes_another_background(labels: torch.Tensor) -> None:
    assert (labels[stream(labels, 0.5, 100, seed=1, background=2)] == 2).sum() == 50


def test_a_stream_is_mixed_and_depends_on_its_seed_alone(labels: torch.Tensor) -> None:
    drawn = stream(labels, 0.1, 500, seed=1)
    assert 0 < (labels[drawn[:250]] > 0).sum() < 50
    assert torch.equal(drawn, stream(labels, 0.1, 500, seed=1))
    assert not torch.equal(drawn, stream(labels, 0.1, 500, seed=2))


def test_a_stream_that_is_too_long_says_how_long_it_may_be(labels: torch.Tensor) -> None:
    with pytest.raises(DataError, match=r"needs 60 positives and 540.*are 100 and 500.*no more than 555"):
        stream(labels, 0.1, 600, seed=0)
    assert len(stream(labels, 0.1, 555, seed=0)) == 555
    with pytest.raises(DataError, match=r"share of positives is 0: it must lie between"):
        stream(labels, 0, 10, seed=0)


# --- Fashion-MNIST


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
    text = (
        r"fashion-mnist was not found. Looked in: .*nowhere \(is not there\). To get it: `penstock data fetch "
        r"fashion-mnist` \(31 MB from .*\), or install Debian's package dataset-fashion-mnist; or give a folder with "
        r"train-images-idx3-ubyte.gz, "
    )
    with pytest.raises(DataError, match=text):
        fashion_mnist(tmp_path / "nowhere")


def test_one_missing_file_is_named(small_folder: Path) -> None:
    (small_folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"\(lacks t10k-labels-idx1-ubyte.gz\)"):
        fashion_mnist(small_folder)


def test_a_wrong_checksum_is_refused(small_folder: Path) -> None:
    text = r"another data set: the sha256 of its content is [0-9a-f]{64}, the original's is c59f468a.* get it again"
    with pytest.raises(DataError, match=text):
        fashion_mnist(small_folder)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (idx(np.arange(1000))[:-40], r"is not a whole gzip file .*fetch it again"),
        (b"no gzip at all", r"is not a whole gzip file .*fetch it again"),
        (
            idx(np.arange(9), magic=b"\x00\x00\x0d"),
            r"starts with 00 00 0d 01, and an idx file of bytes with 00 00 08",
        ),
        (gzip.compress(b""), r"starts with .*, and an idx file"),
        (gzip.compress(b"\x00\x00\x08\x03\x00\x00"), r"ends within its header, after 6 bytes of 16"),
        (
            gzip.compress(b"\x00\x00\x08\x01\x00\x00\x00\x05abcd"),
            r"holds 4 values, and its header says \(5,\)",
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


# --- wrist


def written(file: Path, **changes: object) -> Path:
    """Write seglearn's layout: two exercises by each of four subjects, 150 samples each."""
    signals = [np.random.default_rng(i).normal(i, 1 + i, (150, 6)) for i in range(8)]
    content = {
        "X": signals,
        "y": np.array([0, 1] * 4),
        "y_labels": ["PEN", "ROW"],
        "subject": np.array([1, 1, 2, 2, 3, 3, 4, 4]),
    }
    np.save(file, np.array({**content, **changes}, dtype=object), allow_pickle=True)
    return file


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    return written(tmp_path / "watch_dataset.npy")


def test_wrist_cuts_windows_of_two_seconds_every_half(small_file: Path) -> None:
    data = wrist(small_file, of_interest=("ROW",), validation=(3,), test=(4,))
    assert data.class_names == ("background", "ROW")
    assert data.train.x.shape == (4 * 3, 6, 100)
    assert data.train.recording.tolist() == [r for r in range(4) for _ in range(3)]
    assert data.train.y.tolist() == [0, 0, 0, 1, 1, 1] * 2
    assert [id(part) for part in data.train.samples] == [id(data.train.x), id(data.train.y)]
    signal = (read_recordings(small_file)[6].signal.T - data.mean[:, None].numpy()) / data.std[:, None].numpy()
    np.testing.assert_allclose(data.test.x[1], signal[:, 25:125], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_wrist_reads_the_pickles_of_old_and_new_pythons(tmp_path: Path, small_file: Path, protocol: int) -> None:
    file = tmp_path / "other.npy"
    array = np.load(small_file, allow_pickle=True)
    with file.open("wb") as opened:
        np.lib.format.write_array_header_1_0(opened, np.lib.format.header_data_from_array_1_0(array))
        body = pickle.dumps(array, protocol)
        # a protocol 2 pickle of numpy 1 differs in this name alone; names have no length prefix there
        opened.write(body.replace(b"cnumpy._core.", b"cnumpy.core.") if protocol == 2 else body)
    for ours, original in zip(read_recordings(file), read_recordings(small_file), strict=True):
        assert np.array_equal(ours.signal, original.signal)


class Malice:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.file,)


def test_wrist_runs_no_code_of_a_pickle(tmp_path: Path) -> None:
    harmed = tmp_path / "harmed"
    file = written(tmp_path / "watch_dataset.npy", side=Malice(harmed))
    with pytest.raises(DataError, match=r"it asks for .*, which no array needs"):
        wrist(file)
    assert not harmed.exists()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"subject": np.array([1, 2])}, r"must hold X, y, y_labels and subject, as long as each other"),
        ({"y_labels": ["PEN"]}, r"must hold X, y, y_labels.*IndexError"),
        ({"X": [np.zeros((99, 6))] * 8}, r"recording 0 .*shape \(99, 6\), and it takes \(at least 100, 6\)"),
        ({"X": [np.zeros((300, 3))] * 8}, r"recording 0 .*shape \(300, 3\)"),
    ],
    ids=["lengths", "labels", "short", "axes"],
)
def test_another_layout_is_refused(tmp_path: Path, changes: dict[str, object], text: str) -> None:
    file = written(tmp_path / "watch_dataset.npy", **changes)
    with pytest.raises(DataError, match=text):
        wrist(file)


def test_a_damaged_wrist_file_is_refused(tmp_path: Path, small_file: Path) -> None:
    whole = small_file.read_bytes()
    for content in (whole[:-100], whole[:200], b"", b"\x93NUMPY\x03\x00" + whole[8:]):
        small_file.write_bytes(content)
        with pytest.raises(DataError, match=r"is not an npy file of arrays .*force-reinstall seglearn"):
            wrist(small_file)


def test_missing_wrist_data_say_where_they_were_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.datasets.fetch.sources.find_spec", lambda name: None)
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    text = r"wrist was not found. Looked in: {} \(is not there\). To get it: `pip install --no-deps seglearn`; or give"
    with pytest.raises(DataError, match=text.format(tmp_path / "wrist")):
        wrist()
    with pytest.raises(DataError, match=text.format(tmp_path / "watch.npy")):
        wrist(tmp_path / "watch.npy")
    with pytest.raises(DataError, match=r"watch.npy is not there.*`pip install --no-deps seglearn`"):
        read_recordings(tmp_path / "watch.npy")


def test_wrist_reads_the_cache_its_folder_and_a_file_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache comes before the installed package, as `penstock data list` says."""
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    (tmp_path / "wrist").mkdir()
    file = written(tmp_path / "wrist" / "watch_dataset.npy")
    assert look(WRIST).at == file
    parts = {"of_interest": ("ROW",), "validation": (3,), "test": (4,)}
    expected = wrist(file, **parts).train.x
    renamed = written(tmp_path / "mine.npy")
    for place in (None, file.parent, renamed):
        assert wrist(place, **parts).train.x.equal(expected)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"of_interest": ("RUN",)}, r"exercises of interest: RUN\. Name each once.*not all of PEN, ROW"),
        ({"of_interest": ()}, r"exercises of interest: none\. "),
        ({"of_interest": ("PEN", "ROW")}, r"not all of PEN, ROW"),
        ({"of_interest": ("PEN",), "test": (3,)}, r"subjects held out: 3, 3\. Name each once"),
        ({"of_interest": ("PEN",), "test": ()}, r"subjects to test with: none\. "),
        ({"of_interest": ("PEN",), "test": (5,)}, r"subjects to test with: 5\. .* not all of 1, 2, 3, 4"),
        ({"of_interest": ("PEN",), "test": (1, 2, 4)}, r"subjects held out: 3, 1, 2, 4\. "),
    ],
    ids=["unknown", "none", "all", "twice", "no test", "nobody", "no training"],
)
def test_wrist_checks_its_arguments(small_file: Path, arguments: dict[str, tuple], text: str) -> None:
    with pytest.raises(DataError, match=text):
        wrist(small_file, validation=(3,), **{"test": (4,), **arguments})


@pytest.fixture(scope="module")
def watch() -> Wrist:
    return wrist()


@needs_seglearn
def test_the_wrist_data_are_whole(watch: Wrist) -> None:
    parts = (watch.train, watch.validation, watch.test)
    assert sum(len(part.recording.unique()) for part in parts) == 140
    assert sum(len(part.y) for part in parts) == 9_276
    assert all(part.x.shape[1:] == (6, 100) and part.x.dtype == torch.float32 for part in parts)
    assert all(part.x.isfinite().all() and part.y.unique().tolist() == [0, 1, 2, 3] for part in parts)


@needs_seglearn
def test_no_subject_and_no_recording_is_in_two_splits(watch: Wrist) -> None:
    def disjoint(a: torch.Tensor, b: torch.Tensor) -> bool:
        return not set(a.tolist()) & set(b.tolist())

    pairs: list[tuple[Windows, Windows]] = [
        (watch.train, watch.validation),
        (watch.train, watch.test),
        (watch.validation, watch.test),
    ]
    assert all(disjoint(a.subject, b.subject) and disjoint(a.recording, b.recording) for a, b in pairs)


@needs_seglearn
def test_wrist_is_standardised_with_the_training_windows(watch: Wrist) -> None:
    torch.testing.assert_close(watch.train.x.mean(dim=(0, 2)), torch.zeros(6), rtol=0, atol=1e-4)
    torch.testing.assert_close(watch.train.x.std(dim=(0, 2)), torch.ones(6), rtol=0, atol=1e-4)
    assert watch.test.x.mean(dim=(0, 2)).abs().max() > 1e-3  # other subjects, measured with the same rule


@needs_seglearn
def test_the_same_call_gives_the_same_windows(watch: Wrist) -> None:
    again = wrist()
    assert torch.equal(again.test.x, watch.test.x)
    assert torch.equal(again.test.y, watch.test.y)


def test_a_validation_part_is_taken_from_train_once(labels: torch.Tensor) -> None:
    x = torch.arange(len(labels))
    whole = Splits((x, labels), (x, labels), ("background", "a"))
    held = with_validation(whole, 0.25, seed=3)
    kept, out = split(x, labels, 0.25, seed=3)
    assert held.train[0].equal(kept.x) and held.validation[0].equal(out.x)
    assert with_validation(held, 0.5) is held
    with pytest.raises(DataError, match="a TensorDataset cannot be split here"):
        with_validation(Splits(torch.utils.data.TensorDataset(x), (x, labels), ("background",)), 0.25)
