"""The wrist data: windows, splits by subject, damaged files, and the real file where installed."""

import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock.datasets.fetch.locations import locate
from penstock.datasets.fetch.table import WRIST
from penstock.datasets.wrist import Windows, Wrist, read_recordings, wrist
from penstock.errors import DataError

needs_seglearn = pytest.mark.skipif(
    find_spec("seglearn") is None, reason="needs the wrist data: pip install --no-deps seglearn"
)


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
    data = wrist(small_file, positives=("ROW",), validation=(3,), test=(4,))
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
    with pytest.raises(DataError, match=r"not allowed"):
        wrist(file)
    assert not harmed.exists()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"subject": np.array([1, 2])}, r"X, y, y_labels and subject"),
        ({"y_labels": ["PEN"]}, r"y_labels.*IndexError"),
        ({"X": [np.zeros((99, 6))] * 8}, r"at least 100, 6.*recording 0.*\(99, 6\)"),
        ({"X": [np.zeros((300, 3))] * 8}, r"recording 0.*\(300, 3\)"),
    ],
    ids=["lengths", "labels", "short", "axes"],
)
def test_another_layout_is_refused(tmp_path: Path, changes: dict[str, object], text: str) -> None:
    file = written(tmp_path / "watch_dataset.npy", **changes)
    with pytest.raises(DataError, match=text):
        wrist(file)


def test_a_damaged_wrist_file_is_refused(tmp_path: Path, small_file: Path) -> None:
    complete = small_file.read_bytes()
    for content in (complete[:-100], complete[:200], b"", b"\x93NUMPY\x03\x00" + complete[8:]):
        small_file.write_bytes(content)
        with pytest.raises(DataError, match=r"npy .*seglearn"):
            wrist(small_file)


def test_missing_wrist_data_say_where_they_were_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.datasets.fetch.sources.find_spec", lambda name: None)
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    text = r"wrist not found.* {} .*pip install --no-deps seglearn"
    with pytest.raises(DataError, match=text.format(tmp_path / "wrist")):
        wrist()
    with pytest.raises(DataError, match=text.format(tmp_path / "watch.npy")):
        wrist(tmp_path / "watch.npy")


def test_wrist_reads_the_cache_its_folder_and_a_file_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache is searched before the installed package, as by `penstock data list`."""
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    (tmp_path / "wrist").mkdir()
    file = written(tmp_path / "wrist" / "watch_dataset.npy")
    assert locate(WRIST).path == file
    parts = {"positives": ("ROW",), "validation": (3,), "test": (4,)}
    expected = wrist(file, **parts).train.x
    renamed = written(tmp_path / "mine.npy")
    for place in (None, file.parent, renamed):
        assert wrist(place, **parts).train.x.equal(expected)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"positives": ("RUN",)}, r"positives .*PEN, ROW.*got RUN"),
        ({"positives": ()}, r"positives .*got none"),
        ({"positives": ("PEN", "ROW")}, r"positives .*got PEN, ROW"),
        ({"positives": ("PEN",), "test": (3,)}, r"held-out .*got 3, 3"),
        ({"positives": ("PEN",), "test": ()}, r"test subjects .*got none"),
        ({"positives": ("PEN",), "test": (5,)}, r"test subjects .*1, 2, 3, 4.*got 5"),
        ({"positives": ("PEN",), "test": (1, 2, 4)}, r"held-out .*got 3, 1, 2, 4"),
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
def test_the_wrist_data_are_complete(watch: Wrist) -> None:
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
