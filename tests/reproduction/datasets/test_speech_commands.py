"""Speech Commands: laws of the plan, both layouts, damaged files, and the real subset if it is there."""

import csv
import hashlib
import io
import sys
import wave
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datasets.audio_clips import PARTS, decode_clip, read_clip
from penstock.datasets.speech_commands import LISTS, ZIPS, files_in_zip
from penstock.datasets.splits import Splits
from penstock.errors import DataError, MissingExtraError, StorageError
from penstock.runtime.streaming.features import Mfcc, features
from reproduction.datasets import speech_commands as module
from reproduction.datasets.balance import (
    MIXED_GAIN,
    SHIFT,
    Balance,
    Thinned,
    Whole,
    draw,
    measured_crops,
    training_crops,
)
from reproduction.datasets.clip_crops import ClipCrop, Noise, Plan, render_crop, render_features
from reproduction.datasets.speech_commands import LENGTH, WakeWord, Words, speech_commands

SUBSET = Path(__file__).parents[4] / "shared" / "data" / "speech_commands_v0.01_subset"
needs_subset = pytest.mark.skipif(not SUBSET.is_dir(), reason="needs ../shared/data/speech_commands_v0.01_subset")

WORDS = ("yes", "no", "bed", "cat", "dog")
SPEAKERS = {"train": ("a1", "a2", "a3", "a4"), "validation": ("b1", "b2", "b3"), "test": ("c1", "c2", "c3")}
TASK = Words(("yes", "no"))


def sound_file(samples: np.ndarray, kind: str = "WAV", rate_hz: int = 16_000, subtype: str = "PCM_16") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate_hz, format=kind, subtype=subtype)
    return buffer.getvalue()


def noise(samples: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3000, 3000, samples).astype(np.int16)


def clips() -> dict[str, np.ndarray]:
    """All sounds of a small data set, without suffix; two speakers speak for less than a second."""
    names = [f"{word}/{speaker}_nohash_0" for word in WORDS for speakers in SPEAKERS.values() for speaker in speakers]
    sounds = {name: noise(14_000 if "2" in name else 16_000, seed) for seed, name in enumerate(names)}
    return sounds | {
        f"_background_noise_/{kind}": noise(10 * 16_000 + 99, 1000 + len(kind)) for kind in ("tap", "bike")
    }


def write_lists(folder: Path, words: tuple[str, ...] = WORDS) -> None:
    for part, file in LISTS.items():
        named = [f"{word}/{speaker}_nohash_0.wav" for word in words for speaker in SPEAKERS[part]]
        (folder / file).write_text("\n".join(named) + "\n")


@pytest.fixture(scope="session")
def made_release(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {f"{name}.wav": sound_file(samples) for name, samples in clips().items()}


@pytest.fixture
def release(tmp_path: Path, made_release: dict[str, bytes]) -> Path:
    """The official layout: a folder a word, noise, lists."""
    folder = tmp_path / "release"
    for name, content in made_release.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "_background_noise_" / "README.md").write_text("about the noises")
    write_lists(folder)
    return folder


@pytest.fixture
def zips(tmp_path: Path) -> Path:
    """The same clips as zips of flac; the lists name more."""
    folder = tmp_path / "zips"
    folder.mkdir()
    write_lists(folder, (*WORDS, "absent"))
    opened = {name: zipfile.ZipFile(folder / name, "w") for name in ZIPS}
    for name, samples in clips().items():
        part = next((p for p, speakers in SPEAKERS.items() if name.split("/")[1][:2] in speakers), "background_noise")
        opened[f"{part}.zip"].writestr(f"{name}.flac", sound_file(samples, "FLAC"))
    for archive in opened.values():
        archive.close()
    return folder


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Return the plan of a call, hearing nothing."""
    monkeypatch.setattr(module, "render_features", lambda plan, *rest, **more: plan)
    return speech_commands


# --- laws of the parts


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 60), st.integers(1, 20), st.integers(0, 5))
def test_training_takes_have_the_ratio_and_each_positive_once(yes: int, cap: int, ratio: int, seed: int) -> None:
    positives = [ClipCrop(1, f"yes{i}") for i in range(yes)]
    others = [ClipCrop(0, f"bed{i}") for i in range(cap + 1)]
    spans = {"tap": range(5 * LENGTH), "bike": range(LENGTH, 2 * LENGTH)}
    crops = training_crops(positives, others, spans, ratio=ratio, length=LENGTH, seed=seed)
    labels = Counter(crop.label for crop in crops)
    assert labels == {1: yes, 0: ratio * yes}
    assert sorted(crop.clip for crop in crops if crop.label) == sorted(crop.clip for crop in positives)
    uses = Counter(crop.clip for crop in crops if crop.clip and not crop.label)
    assert not uses or max(uses.values()) - min(uses.values()) <= 1  # none is used much more than another
    for crop in crops:
        assert abs(crop.start) <= SHIFT
        assert crop.clip is None or (crop.start == 0 if crop.noise is None else crop.noise.gain <= MIXED_GAIN)
        if crop.noise is not None:
            span = spans[crop.noise.name]
            assert span.start <= crop.noise.start and crop.noise.start + LENGTH <= span.stop


def test_noise_in_training_does_not_tell_the_label() -> None:
    positives = [ClipCrop(1, f"yes{i}") for i in range(2000)]
    others = [ClipCrop(0, f"bed{i}") for i in range(9000)]
    crops = training_crops(positives, others, {"tap": range(LENGTH)}, ratio=9, length=LENGTH, seed=3)
    mixed = [np.mean([t.noise is not None for t in crops if t.clip and t.label == label]) for label in (0, 1)]
    assert mixed[0] == pytest.approx((16_200 - 9000) / 16_200)
    assert mixed[1] == pytest.approx(mixed[0], abs=0.04)  # four standard errors


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(40, 200), st.integers(1, 9), st.integers(0, 9))
def test_measured_crops_have_the_ratio_and_no_duplicates(counts: list[int], backs: int, ratio: int, seed: int) -> None:
    positives = [[ClipCrop(label, f"{label}-{i}") for i in range(n)] for label, n in enumerate(counts, 1)]
    negatives = [ClipCrop(0, f"0-{i}") for i in range(backs)]
    crops = measured_crops(positives, negatives, Thinned(), ratio=ratio, seed=seed, part="test")
    labels = Counter(crop.label for crop in crops)
    assert labels[0] == ratio * (len(crops) - labels[0])
    assert len({labels[label] for label in range(1, len(counts) + 1)}) == 1
    assert len(set(crops)) == len(crops)
    most = min(*counts, backs // (ratio * len(counts)))
    assert labels[1] == most
    everything = measured_crops(positives, negatives, Whole(), ratio=ratio, seed=seed, part="test")
    assert Counter(everything) == Counter([crop for crops in positives for crop in crops] + negatives)


def test_seeds_take_turns_so_that_all_is_used_once() -> None:
    things = list(range(100))
    turns = [draw(things, 10, seed) for seed in range(10)]
    assert sorted(chain(*turns)) == things
    assert draw(things, 10, 10) == turns[0]
    assert draw(things, 500, 3) != things and sorted(draw(things, 500, 3)) == things
    assert draw(things, None, 1) != draw(things, None, 2)


def test_too_few_negatives_are_refused() -> None:
    text = r"negatives in test.* 18, found 8.*negatives_per_positive"
    with pytest.raises(DataError, match=text):
        measured_crops(
            [[ClipCrop(1, "a")], [ClipCrop(2, "b")]], [ClipCrop(0, "c")] * 8, Thinned(), ratio=9, seed=0, part="test"
        )


# --- crops


def test_render_is_what_a_loop_computes() -> None:
    sounds = {"clip": noise(700, 1), "tap": noise(5000, 2)}
    for crop in (
        ClipCrop(1, "clip"),
        ClipCrop(1, "clip", start=-120, noise=Noise("tap", 33, 0.5)),
        ClipCrop(1, "clip", start=250, length=200),
        ClipCrop(1, "clip", start=-30, length=100),
        ClipCrop(0, noise=Noise("tap", 4000, 20.0)),  # loud enough to be clipped
    ):
        expected = []
        for i in range(1000):
            at, value = i + crop.start, 0.0
            if crop.clip and 0 <= at < 700 and (crop.length is None or i < crop.length):
                value += sounds["clip"][at]
            if crop.noise:
                value += crop.noise.gain * sounds["tap"][crop.noise.start + i]
            expected.append(max(-1, min(1, value / 32768)))
        np.testing.assert_allclose(render_crop(crop, sounds.__getitem__, 1000), expected, atol=1e-6)


def test_features_follow_the_plan_and_are_standardised_with_the_training_part() -> None:
    sounds = {name: noise(16_000, seed) // (1 + seed % 5) for seed, name in enumerate("abcdefgh")}
    plan = {
        "train": [
            ClipCrop(0, "d"),
            ClipCrop(1, "a"),
            ClipCrop(0, "b", start=-400),
            ClipCrop(0, "d", noise=Noise("c", 0, 0.1)),
        ],
        "validation": [ClipCrop(1, "e"), ClipCrop(0, "f")],
        "test": [ClipCrop(0, "h"), ClipCrop(1, "g")],
    }
    data = render_features(plan, sounds.__getitem__, ("background", "a"), length=LENGTH, spec=Mfcc())
    raw = {
        part: features(np.stack([render_crop(t, sounds.__getitem__, LENGTH) for t in plan[part]]), Mfcc())
        for part in PARTS
    }
    mean, std = (f(raw["train"], axis=(0, 2))[:, None] for f in (np.mean, np.std))
    for part in PARTS:
        x, y = getattr(data, part)
        np.testing.assert_allclose(x, (raw[part] - mean) / std, rtol=1e-3, atol=1e-3)
        assert y.tolist() == [crop.label for crop in plan[part]]


def test_silence_alone_cannot_be_standardised() -> None:
    plan = {part: [ClipCrop(0, "a")] for part in PARTS}
    with pytest.raises(DataError, match="identical"):
        render_features(plan, lambda name: np.zeros(16_000, np.int16), ("background",), length=LENGTH, spec=Mfcc())


# --- both layouts


def equal(one: Splits, other: Splits) -> bool:
    pairs = [(getattr(one, part), getattr(other, part)) for part in PARTS]
    return all(torch.equal(a, b) for mine, yours in pairs for a, b in zip(mine, yours, strict=True))


def test_the_release_and_the_zips_give_the_same(release: Path, zips: Path) -> None:
    first = speech_commands(release, task=TASK, balance=Balance(3))
    second = speech_commands(zips, task=TASK, balance=Balance(3))
    assert first.class_names == ("background", "yes", "no")
    assert first.train.x.shape == (8 * 4, 40, 49) and first.train.x.dtype == torch.float32
    assert first.train.y.bincount().tolist() == [24, 4, 4]
    assert first.validation.y.bincount().tolist() == first.test.y.bincount().tolist() == [12, 2, 2]
    assert equal(first, second)


def test_the_same_call_gives_the_same_and_another_seed_another(release: Path) -> None:
    first, again, other = (speech_commands(release, task=WakeWord("yes"), seed=seed) for seed in (0, 0, 1))
    assert equal(first, again)
    assert not equal(first, other)
    assert first.class_names == ("background", "yes")


def test_what_no_list_names_is_for_training(release: Path, planned: Callable[..., Plan]) -> None:
    plan = planned(release, task=TASK, balance=Balance(3, held_out=Whole()))
    for part, crops in plan.items():
        assert {crop.clip.split("/")[1][:2] for crop in crops if crop.clip} == set(SPEAKERS[part])


def test_a_release_that_was_unpacked_in_part_is_refused_unless_a_subset_is_meant(
    release: Path, planned: Callable[..., Plan]
) -> None:
    complete = planned(release, task=TASK, balance=Balance(3, held_out=Whole()))
    for name in ("b1", "c2"):
        (release / "cat" / f"{name}_nohash_0.wav").unlink()
    text = r"release lacks 2 of the 30 .*cat/b1_nohash_0.wav.*subset=True"
    with pytest.raises(DataError, match=text):
        speech_commands(release, task=TASK, balance=Balance(3))
    part = planned(release, task=TASK, balance=Balance(3, held_out=Whole()), subset=True)
    for name, clip in (("validation", "cat/b1_nohash_0.wav"), ("test", "cat/c2_nohash_0.wav")):
        assert {crop for crop in complete[name] if crop.clip != clip} == set(part[name]) != set(complete[name])


def test_features_are_kept_in_the_cache(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"task": TASK, "balance": Balance(3), "cache": tmp_path / "cache"}
    first = speech_commands(release, **arguments)
    with monkeypatch.context() as patched:
        patched.setattr(module, "render_features", None)  # would fail if features were computed again
        assert equal(speech_commands(release, **arguments), first)
    speech_commands(release, **arguments, seed=1)
    (release / "yes" / "a1_nohash_0.wav").write_bytes(sound_file(noise(15_000, 77)))
    assert not equal(speech_commands(release, **arguments), first)
    assert len(list((tmp_path / "cache").iterdir())) == 3
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"speech_commands-\w+\.npz .*damaged"):
        speech_commands(release, **arguments)


def test_a_cache_that_cannot_be_written_says_so(release: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(StorageError, match="cache"):
        speech_commands(release, task=TASK, balance=Balance(3), cache=tmp_path / "cache")


# --- bad input


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"task": WakeWord("bet")}, r"'bet'.* bed\? .*bed, cat"),
        ({"task": WakeWord("xylophone")}, r"'xylophone'.* bed, cat, dog, no, yes"),
        ({"task": Words(())}, r"got none"),
        ({"task": Words(("yes", "yes"))}, r"got yes, yes"),
        ({"task": Words(WORDS)}, r"no train clips of any other word"),
        ({"seed": -1}, r"seed .*got -1"),
        ({"features": Mfcc(rate_hz=8000, high_hz=4000, mels=20, coefficients=20)}, r"8000 Hz"),
        ({"task": TASK, "balance": Balance(99)}, r"negatives in validation: 99 per positive"),
    ],
)
def test_arguments_are_checked(release: Path, arguments: dict[str, object], text: str) -> None:
    with pytest.raises(DataError, match=text):
        speech_commands(release, **{"task": TASK, "balance": Balance(3), **arguments})


def test_a_cap_is_checked_where_it_is_written() -> None:
    with pytest.raises(DataError, match=r"positives_per_word .*got 0"):
        Thinned(positives_per_word=0)
    for arguments in ({"negatives_per_positive": 0}, {"negatives_per_positive": 1.5}, {"train_positives_per_word": 0}):
        ((name, value),) = arguments.items()
        with pytest.raises(DataError, match=rf"{name} .*got {value}"):
            Balance(**arguments)


def test_missing_lists_are_named(release: Path) -> None:
    (release / "testing_list.txt").unlink()
    with pytest.raises(DataError, match=r"lacks testing_list.txt"):
        speech_commands(release)


def test_a_damaged_list_is_named(release: Path) -> None:
    (release / "testing_list.txt").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match=r"testing_list.txt"):
        speech_commands(release)


def test_a_missing_folder_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"speech-commands-v0.02 .*penstock data fetch"):
        speech_commands()


def test_the_release_is_found_where_fetching_puts_it(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = release.parent / "data"
    (root / "speech-commands-v0.01").mkdir(parents=True)
    release.rename(root / "speech-commands-v0.01" / "speech_commands_v0.01")
    monkeypatch.setenv("PENSTOCK_DATA", str(root))
    assert len(speech_commands(task=TASK, balance=Balance(3)).test.y) == 16


def test_a_speaker_in_two_parts_is_refused(release: Path) -> None:
    lists = release / "testing_list.txt"
    lists.write_text(lists.read_text().replace("dog/c2_nohash_0.wav", ""))
    with pytest.raises(DataError, match=r"c2 .*test and train .*dog/c2_nohash_0.wav"):
        speech_commands(release, task=TASK)


def test_a_word_without_test_clips_is_refused(release: Path) -> None:
    for file in (release / "yes").glob("c*"):
        file.unlink()
    with pytest.raises(DataError, match=r"no test clips .*yes"):
        speech_commands(release, task=TASK, subset=True)


def test_too_little_noise_is_refused(release: Path) -> None:
    for file in (release / "_background_noise_").glob("*.wav"):
        file.write_bytes(sound_file(noise(16_000, 1)))
    with pytest.raises(DataError, match=r"noise for validation"):
        speech_commands(release, task=TASK, balance=Balance(3))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", r"is empty"),
        (b"not a sound" * 99, r"not recognised"),
        (sound_file(noise(16_000, 1))[:9000], r"is truncated"),
        (sound_file(noise(0, 1)), r"no samples"),
        (sound_file(noise(16_000, 1), "FLAC")[:9000], r"lost sync"),
        (sound_file(noise(8_000, 1), rate_hz=8000), r"has 8000 Hz"),
        (sound_file(noise(16_000, 1).reshape(-1, 2)), r"has 2 channels"),
        (sound_file(np.zeros(100), subtype="FLOAT"), r"FLOAT"),
    ],
    ids=["empty", "junk", "cut wav", "no samples", "cut flac", "rate", "channels", "float"],
)
def test_a_clip_that_is_not_one_is_named(release: Path, content: bytes, text: str) -> None:
    file = release / "yes" / "c1_nohash_0.wav"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"yes/c1_nohash_0.wav.* " + text):
        speech_commands(release, task=TASK, balance=Balance(3, held_out=Whole()))
    with pytest.raises(DataError, match=text):
        read_clip(file)


def test_a_broken_zip_is_named(zips: Path) -> None:
    file = zips / "train.zip"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"train.zip .*not a.* zip"):
        speech_commands(zips, task=TASK)
    harmed = bytearray(content)
    harmed[1000] ^= 0xFF  # inside the first clip
    file.write_bytes(bytes(harmed))
    with pytest.raises(DataError, match=r"yes/a1_nohash_0.flac .*train.zip .*Bad CRC"):
        speech_commands(zips, task=TASK, balance=Balance(3))


def test_a_missing_zip_and_a_clip_in_two_zips_are_named(zips: Path) -> None:
    with zipfile.ZipFile(zips / "validation.zip", "a") as archive:
        archive.writestr("yes/a1_nohash_0.flac", sound_file(noise(16_000, 1), "FLAC"))
    with pytest.raises(DataError, match=r"yes/a1_nohash_0.flac"):
        speech_commands(zips, task=TASK)
    (zips / "validation.zip").unlink()
    with pytest.raises(DataError, match=r"zips lacks validation.zip"):
        speech_commands(zips, task=TASK)


def test_without_soundfile_the_error_names_the_extra(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtraError, match=r"soundfile.*penstock\[audio\]"):
        speech_commands(release, task=TASK, balance=Balance(3))


# --- the real subset


@needs_subset
def test_flac_decodes_to_the_samples_of_the_original_wav() -> None:
    with (SUBSET / "manifest.tsv").open() as file:
        digests = {row["original_path"]: row["sha256_of_original_wav"] for row in csv.DictReader(file, delimiter="\t")}
    with ExitStack() as stack:
        for name, file in list(files_in_zip(SUBSET / "test.zip", stack).items())[::20]:
            buffer = io.BytesIO()
            with wave.open(buffer, "wb") as out:
                out.setparams((1, 2, 16_000, 0, "NONE", ""))
                out.writeframes(decode_clip(file.read(), name).tobytes())
            assert hashlib.sha256(buffer.getvalue()).hexdigest() == digests[name.replace(".flac", ".wav")]


@needs_subset
@pytest.mark.parametrize(
    ("task", "counts"),
    [
        (Words(), {"train": (5000, 45_000), "validation": (60, 540), "test": (100, 900)}),
        (WakeWord("marvin"), {"train": (1424, 12_816), "validation": (128, 1152), "test": (80, 720)}),
    ],
)
def test_the_plan_of_the_subset(planned: Callable[..., Plan], task: Words, counts: dict[str, tuple[int, int]]) -> None:
    plan = planned(SUBSET, task=task)
    assert {
        part: (sum(t.label > 0 for t in plan[part]), sum(t.label == 0 for t in plan[part])) for part in PARTS
    } == counts
    listed = {part: set((SUBSET / file).read_text().replace(".wav", ".flac").split()) for part, file in LISTS.items()}
    speakers, seconds = {}, {}
    for part, crops in plan.items():
        clips = [crop.clip for crop in crops if crop.clip]
        assert part == "train" or set(clips) <= listed[part]
        assert all(task.words[crop.label - 1] == crop.clip.split("/")[0] for crop in crops if crop.label)
        assert not {crop.clip.split("/")[0] for crop in crops if crop.clip and not crop.label} & set(task.words)
        speakers[part] = {clip.split("/")[1].split("_")[0] for clip in clips}
        noises = [crop.noise for crop in crops if crop.noise]
        seconds[part] = {(n.name, (n.start + edge) // LENGTH) for n in noises for edge in (0, LENGTH - 1)}
        if part != "train":
            assert len(set(crops)) == len(crops) and not any(crop.start for crop in crops)
            assert all(crop.noise is None or crop.clip is None for crop in crops)
    for group in (speakers, seconds):
        assert group["train"] and group["validation"] and group["test"]
        assert not group["train"] & group["validation"] and not group["test"] & (group["train"] | group["validation"])


@needs_subset
def test_the_features_of_the_subset_are_standardised() -> None:
    data = speech_commands(SUBSET, task=WakeWord("marvin"), balance=Balance(9, 20, Thinned(5)))
    assert data.train.x.shape == (200, 40, 49) and data.test.x.shape == data.validation.x.shape == (50, 40, 49)
    torch.testing.assert_close(data.train.x.mean(dim=(0, 2)), torch.zeros(40), rtol=0, atol=1e-3)
    torch.testing.assert_close(data.train.x.std(dim=(0, 2)), torch.ones(40), rtol=0, atol=1e-3)
    assert all(part.x.isfinite().all() for part in (data.train, data.validation, data.test))
    assert data.test.x.mean(dim=(0, 2)).abs().max() > 1e-3  # other speakers, measured with the same rule
