"""Hey Snips, on small files in its layout: splits, lengths, the ratio, and damaged files."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from penstock.datasets.audio_clips import PARTS
from penstock.errors import DataError
from penstock.runtime.streaming.features import Mfcc
from reproduction.datasets import hey_snips as module
from reproduction.datasets.balance import Balance, Thinned, Whole
from reproduction.datasets.clip_crops import Plan
from reproduction.datasets.hey_snips import FILES, hey_snips, read_list

WINDOW = round(2.5 * 16_000)


def entries(part: str, positives: int = 4, negatives: int = 24) -> list[dict[str, Any]]:
    """Positives of 0.8 to 3.2 s, negatives of 0.4 to 7 s."""
    random = np.random.default_rng(len(part))
    longs = [*np.linspace(0.8, 3.2, positives).round(2), *random.uniform(0.4, 7, negatives).round(2)]
    return [
        {
            "duration": float(duration),
            "worker_id": f"{part}-{i % 3}",
            "audio_file_path": f"audio_files/{part}-{i}.wav",
            "id": f"{part}-{i}",
            "is_hotword": int(i < positives),
        }
        for i, duration in enumerate(longs)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "audio_files").mkdir()
    random = np.random.default_rng(0)
    for part, name in FILES.items():
        listed = entries(part)
        (tmp_path / name).write_text(json.dumps(listed))
        for entry in listed:
            samples = random.integers(-3000, 3000, round(entry["duration"] * 16_000) + 40).astype(np.int16)
            soundfile.write(tmp_path / entry["audio_file_path"], samples, 16_000, subtype="PCM_16")
    return tmp_path


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Return the plan of a call, hearing nothing."""
    monkeypatch.setattr(module, "render_features", lambda plan, *rest, **more: plan)
    return hey_snips


def test_the_layout_is_read(folder: Path) -> None:
    data = hey_snips(folder)
    assert data.class_names == ("background", "hey snips")
    for part in (data.train, data.validation, data.test):
        positives = int(part.y.sum())
        assert positives >= 2 and part.y.bincount().tolist() == [9 * positives, positives]
        assert part.x.shape == (10 * positives, 40, 124) and part.x.isfinite().all()
    torch.testing.assert_close(data.train.x.mean(dim=(0, 2)), torch.zeros(40), rtol=0, atol=1e-3)
    torch.testing.assert_close(data.train.x.std(dim=(0, 2)), torch.ones(40), rtol=0, atol=1e-2)


def test_parts_are_those_of_the_lists_and_nothing_is_there_twice(folder: Path, planned: Callable[..., Plan]) -> None:
    plan = planned(folder, balance=Balance(negatives_per_positive=2))
    for part in PARTS:
        assert all(crop.clip.startswith(f"audio_files/{part}-") for crop in plan[part])
        assert all(crop.label == (int(crop.clip.split("-")[1][:-4]) < 4) for crop in plan[part])
        assert len(set(plan[part])) == len(plan[part]) == 12


def test_negatives_are_heard_as_long_as_positives_and_do_not_overlap(
    folder: Path, planned: Callable[..., Plan]
) -> None:
    plan = planned(folder, balance=Balance(held_out=Whole()))
    lasts = {entry["audio_file_path"]: round(entry["duration"] * 16_000) for entry in entries("test")}
    lengths = {min(lasts[crop.clip], WINDOW) for crop in plan["test"] if crop.label}
    negatives = [(crop.clip, crop.start, crop.length) for crop in plan["test"] if not crop.label]
    uses = Counter(length for _, _, length in negatives)
    assert set(uses) == lengths and max(uses.values()) - min(uses.values()) <= 1
    assert all(
        start % WINDOW == 0 and (start == 0 or start + length <= lasts[clip]) for clip, start, length in negatives
    )
    assert {clip for clip, _, _ in negatives} == {path for path in lasts if int(path.split("-")[1][:-4]) >= 4}
    assert len(negatives) > 30  # long clips give several windows


def test_a_long_positive_keeps_its_middle(folder: Path, planned: Callable[..., Plan]) -> None:
    starts = {
        crop.clip: crop.start for crop in planned(folder, balance=Balance(held_out=Whole()))["test"] if crop.label
    }
    assert starts == {"audio_files/test-0.wav": 0, "audio_files/test-1.wav": 0, "audio_files/test-2.wav": 0} | {
        "audio_files/test-3.wav": (51_200 - WINDOW) // 2
    }


def test_caps_and_seeds(folder: Path, planned: Callable[..., Plan]) -> None:
    balance = Balance(negatives_per_positive=3, train_positives_per_word=1, held_out=Thinned(1))
    plans = [planned(folder, balance=balance, seed=seed) for seed in (0, 0, 1)]
    assert plans[0] == plans[1] != plans[2]
    assert all(Counter(crop.label for crop in crops) == {0: 3, 1: 1} for crops in plans[0].values())


def test_features_are_kept_in_the_cache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = hey_snips(folder, cache=tmp_path / "cache")
    monkeypatch.setattr(module, "render_features", None)  # would fail if features were computed again
    again = hey_snips(folder, cache=tmp_path / "cache")
    assert all(torch.equal(a, b) for a, b in zip(first.test, again.test, strict=True))


def test_a_missing_list_is_named(folder: Path) -> None:
    (folder / "dev.json").unlink()
    with pytest.raises(DataError, match=r"hey-snips not found.*lacks dev.json.*https://"):
        hey_snips(folder)


def test_a_missing_clip_is_named(folder: Path) -> None:
    (folder / "audio_files" / "test-5.wav").unlink()
    with pytest.raises(DataError, match=r"test-5.wav \(No such file"):
        hey_snips(folder)


def test_another_duration_is_refused(folder: Path) -> None:
    soundfile.write(folder / "audio_files" / "test-0.wav", np.zeros(4000, np.int16), 16_000, subtype="PCM_16")
    with pytest.raises(DataError, match=r"0\.80 s.*test-0.wav.*0\.25 s"):
        hey_snips(folder, balance=Balance(held_out=Whole()))


def test_a_clip_at_another_rate_is_refused(folder: Path) -> None:
    soundfile.write(folder / "audio_files" / "test-0.wav", np.zeros(4000, np.int16), 44_100, subtype="PCM_16")
    with pytest.raises(DataError, match=r"test-0.wav has 44100 Hz"):
        hey_snips(folder, balance=Balance(held_out=Whole()))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[{", r"JSONDecodeError"),
        ('{"train": 3}', r"TypeError"),
        ('[{"is_hotword": 1}]', r"KeyError\('audio_file_path'\)"),
        (json.dumps([{**entries("test")[0], "is_hotword": "yes"}]), r"invalid entry"),
        (json.dumps([{**entries("test")[0], "duration": -1}]), r"invalid duration -1"),
        (json.dumps([{**entries("test")[0], "duration": float("nan")}]), r"invalid duration nan"),
        (json.dumps(entries("test", negatives=0)), r"has no clips of other speech"),
        (json.dumps(entries("test", positives=0)), r"has no clips of the wake word"),
        ("[]", r"has no clips of the wake word"),
    ],
    ids=["json", "dict", "keys", "kind", "negative", "nan", "positives", "negatives", "empty"],
)
def test_a_list_in_another_layout_is_refused(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "test.json").write_text(content)
    with pytest.raises(DataError, match=r"test.json .*" + text):
        read_list(tmp_path / "test.json")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"seed": -3}, r"seed .*got -3"),
        ({"window_s": 0.01}, r"window_s .*30 ms.*got 0\.01"),
        ({"features": Mfcc(rate_hz=8000, high_hz=4000, mels=20, coefficients=20)}, r"8000 Hz"),
        ({"balance": Balance(500)}, r"negatives in train: 500 per positive"),
    ],
)
def test_arguments_are_checked(folder: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        hey_snips(folder, **arguments)
