"""Folders of sounds: features, labels, splits, the cache, and clips of another format."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.data_files import clip
from penstock.cli.arguments import load_data, select_split
from penstock.datasets import sound_files as module
from penstock.datasets.audio_clips import trim_to_centre
from penstock.datasets.class_folders import HoldOut
from penstock.datasets.loading import batches, class_counts
from penstock.datasets.sound_files import LabelledClip, count_sounds, sound_folder
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from penstock.runtime.streaming.features import Mfcc, features

KINDS = ("alarm", "doorbell", "speech")


def record(file: Path, samples: int = 4000, seed: int = 0, rate_hz: int = 16_000, **how: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    waveform = np.random.default_rng(seed).integers(-3000, 3000, samples).astype(np.int16)
    soundfile.write(file, waveform, rate_hz, **how)


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    """Three kinds of ten clips each, of 0.2 to 0.38 s, as wav and flac."""
    root = tmp_path / "clips"
    for kind, name in enumerate(KINDS):
        for i in range(10):
            record(root / name / f"{i}.{'flac' if i % 2 else 'WAV'}", 3200 + 320 * i, 10 * kind + i)
    (root / "alarm" / "notes.txt").write_text("no sound")
    (root / ".hidden").mkdir()
    return root


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Two kinds in parts of their own: one clip of each in train and test."""
    root = tmp_path / "parts"
    for i, part in enumerate(("train", "test")):
        for k, name in enumerate(("doorbell", "other")):
            record(root / part / name / f"{part}.wav", 4800, 2 * i + k)
    return root


def planned(root: Path, **arguments: Any) -> dict[str, list[LabelledClip]]:
    """Return the plan of a call, hearing nothing."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "compute_features", lambda plan, *rest, **more: plan)
        return sound_folder(root, **arguments)  # type: ignore[return-value]


def equal(one: Splits, other: Splits) -> bool:
    pairs = [(getattr(one, part), getattr(other, part)) for part in ("train", "validation", "test")]
    return all(mine is yours is None or all(map(torch.equal, mine, yours)) for mine, yours in pairs)


# --- features


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30), st.integers(1, 30))
def test_the_middle_is_what_is_left_when_the_ends_are_taken_by_turns(values: list[int], length: int) -> None:
    left = list(values)
    while len(left) > length:
        left.pop(-1 if (len(values) - len(left)) % 2 == 0 else 0)
    assert trim_to_centre(np.array(values, np.int16), length).tolist() == left


def test_features_are_those_of_the_middle_and_standardised_with_the_training_part(clips: Path) -> None:
    """Against the simplest way, clip by clip; the window of 0.3 s is longer than some clips and shorter than others."""
    data, plan = (ask(clips, positives=["doorbell"], window_s=0.3) for ask in (sound_folder, planned))
    raw = {part: np.stack([dumb(clips / sample.clip) for sample in plan[part]]) for part in plan}
    mean, std = (f(raw["train"], axis=(0, 2))[:, None] for f in (np.mean, np.std))
    assert {part: len(x) for part, x in raw.items()} == {"train": 21, "validation": 3, "test": 6}
    for part in plan:
        x, y = getattr(data, part)
        assert x.shape[1:] == (40, 14) and x.dtype == torch.float32
        np.testing.assert_allclose(x, (raw[part] - mean) / std, rtol=1e-3, atol=1e-3)
        assert y.tolist() == [int(sample.clip.startswith("doorbell/")) for sample in plan[part]]


def dumb(file: Path, length: int = 4800) -> np.ndarray:
    waveform, _ = soundfile.read(file, dtype="int16")
    cut = (len(waveform) - length) // 2
    return features(
        (waveform[cut:][:length] if cut > 0 else np.pad(waveform, (0, length - len(waveform))))[None], Mfcc()
    )[0]


# --- labels and parts


def test_a_share_of_each_class_is_held_out_and_no_clip_is_in_two_parts(clips: Path) -> None:
    for i in range(20):
        record(clips / "speech" / f"more{i}.wav", 3200, 100 + i)
    for seed in range(3):
        plan = planned(clips, hold_out=HoldOut(test=0.3, validation=0.2, seed=seed))
        dealt = [sample.clip for samples in plan.values() for sample in samples]
        assert len(dealt) == len(set(dealt)) == 50
        for part, share in (("train", 0.5), ("validation", 0.2), ("test", 0.3)):
            counts = Counter(sample.clip.split("/")[0] for sample in plan[part])
            assert counts == {"alarm": 10 * share, "doorbell": 10 * share, "speech": 30 * share}
            assert all(
                sample.label == {"alarm": 1, "doorbell": 0, "speech": 2}[sample.clip.split("/")[0]]
                for sample in plan[part]
            )


def test_the_same_seed_deals_the_same_clips(clips: Path) -> None:
    first, again, other = (planned(clips, hold_out=HoldOut(seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_parts_of_the_folder_are_taken_as_they_are(parts: Path) -> None:
    plan = planned(parts, positives=["other"])
    assert {part: [(sample.clip, sample.label) for sample in samples] for part, samples in plan.items()} == {
        part: [(f"{part}/doorbell/{part}.wav", 0), (f"{part}/other/{part}.wav", 1)] for part in ("train", "test")
    }
    record(parts / "val" / "doorbell" / "a.wav")
    record(parts / "val" / "other" / "a.wav")
    assert [sample.clip for sample in planned(parts)["validation"]] == ["val/doorbell/a.wav", "val/other/a.wav"]
    (parts / "val").rename(parts / "validation")
    assert [sample.label for sample in planned(parts)["validation"]] == [1, 0]


def test_without_a_validation_part_there_is_none(parts: Path, tmp_path: Path) -> None:
    data = sound_folder(parts, positives=["doorbell"], window_s=0.3)
    assert data.class_names == ("background", "doorbell")
    assert data.validation is None
    assert data.train.y.tolist() == data.test.y.tolist() == [1, 0]
    kept = [sound_folder(parts, positives=["doorbell"], window_s=0.3, cache=tmp_path / "cache") for _ in range(2)]
    assert equal(kept[0], data) and equal(kept[1], data)


def test_a_training_takes_what_it_returns(clips: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As `penstock train -d my_sounds:data` reads it."""
    (tmp_path / "my_sounds.py").write_text(
        "from penstock.datasets import sound_folder\n\n\n"
        f"def data():\n    return sound_folder({str(clips)!r}, positives=['doorbell'], window_s=0.3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    sets = load_data("my_sounds:data")
    assert sets["class_names"] == ("background", "doorbell")
    assert class_counts(sets["train"], 2) == (14, 7)
    x, _ = next(batches(select_split(sets, "validation"), batch_size=2))
    assert x.shape == (2, 40, 14)


# --- the cache


def test_features_are_kept_in_the_cache_until_a_clip_changes(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {"positives": ["alarm"], "window_s": 0.3, "cache": tmp_path / "cache"}
    first = sound_folder(clips, **arguments)
    with monkeypatch.context() as patched:
        patched.setattr(module, "compute_features", None)  # would fail if features were computed again
        assert equal(sound_folder(clips, **arguments), first)
    other = sound_folder(clips, **{**arguments, "positives": ["speech"]})
    assert torch.equal(other.train.x, first.train.x) and not torch.equal(other.train.y, first.train.y)
    assert sound_folder(clips, **{**arguments, "window_s": 0.2}).train.x.shape != first.train.x.shape
    record(clips / "alarm" / "1.flac", 3300, seed=77)
    assert not equal(sound_folder(clips, **arguments), first)
    assert len(list((tmp_path / "cache").iterdir())) == 4


# --- what goes wrong


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"positives": ["bell"]}, r"positives.* got bell; .*alarm, doorbell, speech\."),
        ({"positives": []}, r"positives.* got none"),
        ({"positives": KINDS}, r"positives.* got alarm, doorbell, speech"),
        ({"window_s": 0.01}, r"window_s .*30 ms.*got 0\.01"),
        ({"window_s": float("nan")}, r"window_s .*30 ms.*got nan"),
        ({"features": Mfcc(rate_hz=8000, high_hz=4000, mels=20, coefficients=20)}, r"8000 Hz"),
        ({"hold_out": HoldOut(test=1.0)}, r"share .*got 1\.0"),
        ({"hold_out": HoldOut(test=0.01)}, r"class alarm.*0\.01 of its 10 samples"),
    ],
)
def test_arguments_are_checked(clips: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        sound_folder(clips, **arguments)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"rate_hz": 44_100}, r"44100 Hz"),
        ({"subtype": "PCM_24"}, r"PCM_24"),
    ],
)
def test_a_clip_in_another_format_is_named(clips: Path, how: dict[str, Any], text: str) -> None:
    record(clips / "speech" / "4.WAV", **how)
    with pytest.raises(DataError, match=r"clips/speech/4.WAV .*" + text):
        sound_folder(clips)


def test_stereo_and_damaged_clips_are_named(clips: Path) -> None:
    file = clips / "speech" / "4.WAV"
    complete = file.read_bytes()
    soundfile.write(file, np.zeros((900, 2), np.int16), 16_000)
    with pytest.raises(DataError, match=r"speech/4.WAV has 2 channels"):
        sound_folder(clips)
    for content, text in (
        (complete[:900], "is truncated"),
        (b"", "is empty"),
        (b"no sound", "is not a valid wav or flac file"),
    ):
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"clips/speech/4.WAV {text}"):
            sound_folder(clips)


def test_folders_that_make_no_sense_say_so(clips: Path, parts: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        sound_folder(clips / "nowhere")
    with pytest.raises(DataError, match=r"alarm/1.flac .*not a folder"):
        sound_folder(clips / "alarm" / "1.flac")
    with pytest.raises(DataError, match=r"alarm has 0 sub-folders"):
        sound_folder(clips / "alarm")
    (clips / "empty").mkdir()
    with pytest.raises(DataError, match=r"clips/empty has no sounds.*\.flac"):
        sound_folder(clips)
    record(parts / "test" / "knock" / "a.wav")
    with pytest.raises(DataError, match=r"parts/test has different classes.*knock"):
        sound_folder(parts)
    for name in ("val", "validation"):
        (parts / name).mkdir()
    with pytest.raises(DataError, match=r"parts .*validation and val"):
        sound_folder(parts)
    (parts / "train").rename(parts / "training")
    with pytest.raises(DataError, match=r"parts .*validation, val, test, "):
        sound_folder(parts)


def test_silence_alone_cannot_be_standardised(parts: Path) -> None:
    for file in parts.glob("train/*/*.wav"):
        soundfile.write(file, np.zeros(4800, np.int16), 16_000)
    with pytest.raises(DataError, match="identical"):
        sound_folder(parts)


# --- counting


def test_every_clip_is_decoded_and_counted(clips: Path, parts: Path) -> None:
    assert count_sounds(clips) == {
        "train": dict.fromkeys(KINDS, 7),
        "validation": dict.fromkeys(KINDS, 1),
        "test": dict.fromkeys(KINDS, 2),
    }
    record(parts / "train" / "other" / "more.wav")
    assert count_sounds(parts) == {"train": {"doorbell": 1, "other": 2}, "test": {"doorbell": 1, "other": 1}}


def test_clips_of_no_use_are_counted_and_all_are_named(clips: Path) -> None:
    (clips / "speech" / "8.WAV").write_bytes(b"")
    with pytest.raises(DataError, match=r"^1 of 30 .*clips/speech/8.WAV is empty"):
        count_sounds(clips)
    for i in range(0, 10, 2):
        record(clips / "alarm" / f"{i}.WAV", rate_hz=8000)
    with pytest.raises(DataError, match=r"^6 of 30 ") as error:
        count_sounds(clips)
    assert str(error.value).count(" 8000 Hz") == 5


def test_without_soundfile_the_error_names_the_extra(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    for ask in (sound_folder, count_sounds):
        with pytest.raises(ImportError, match=r"soundfile.*penstock\[audio\]"):
            ask(clips)


def test_train_and_val_are_taken_as_imagenet_has_them(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for name in ("bell", "other"):
            clip(tmp_path / part / name / "a.wav")
    for _ in range(2):  # the second time from the cache
        data = sound_folder(tmp_path, cache=tmp_path / "cache")
        assert (len(data.train.y), len(data.validation.y), data.test) == (2, 2, None)
    assert count_sounds(tmp_path)["validation"] == {"bell": 1, "other": 1}
