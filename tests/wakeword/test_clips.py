"""Material is read from any folder of sounds and from Speech Commands; parts share nothing."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from penstock.errors import DataError
from penstock.wakeword.clips import load_clip_sets, locate_word

SUBSET = Path(__file__).parents[3] / "shared" / "data" / "speech_commands_v0.01_subset"


def make_folder(root: Path, words=("up", "down"), noise=True) -> Path:
    rng = np.random.default_rng(0)
    for word in words:
        (root / word).mkdir(parents=True)
        for i in range(20):
            clip = np.concatenate([np.zeros(4000), rng.normal(0, 4000, 6000), np.zeros(4000 + i)]).astype(np.int16)
            soundfile.write(root / word / f"{i:02}.wav", clip, 16_000)
    if noise:
        (root / "_background_noise_").mkdir()
        ramp = np.arange(160_000, dtype=np.int32) % 30_000
        soundfile.write(root / "_background_noise_" / "hum.wav", ramp.astype(np.int16), 16_000)
    return root


def test_a_folder_of_clips(tmp_path):
    found = load_clip_sets(make_folder(tmp_path), "up")
    assert set(found) == {"train", "validation", "test"}
    counts = {part: len(of.words["up"]) for part, of in found.items()}
    assert sum(counts.values()) == 20
    assert all(counts.values())
    assert "_background_noise_" not in found["train"].words
    assert [len(of.noises[0]) for of in found.values()] == [96_000, 32_000, 32_000]
    clip = found["train"].words["up"][0]
    assert (clip.begin, clip.end) == (4000, 10_080)
    lengths = [len(clip.samples) for of in found.values() for clip in of.words["up"]]
    assert sorted(lengths) == [14_000 + i for i in range(20)]  # nobody is in two parts


def test_without_noises_some_are_made_up(tmp_path):
    found = load_clip_sets(make_folder(tmp_path, noise=False), "up")
    assert all(len(noise) == 30 * 16_000 for noise in found["train"].noises)
    assert not np.array_equal(found["train"].noises[0], found["test"].noises[0])


def test_words_that_are_not_there(tmp_path):
    root = make_folder(tmp_path)
    with pytest.raises(DataError, match=r"'left'.*down, up"):
        load_clip_sets(root, "left")
    with pytest.raises(DataError, match="nowhere"):
        load_clip_sets(tmp_path / "nowhere", "up")


def test_a_word_against_none_is_refused(tmp_path):
    root = make_folder(tmp_path, words=("up",))
    with pytest.raises(DataError, match="1 sub-folders"):
        load_clip_sets(root, "up")


def test_silence_is_a_clip_of_its_whole_length():
    clip = locate_word(np.zeros(1600, np.int16))
    assert (clip.begin, clip.end, clip.loudness) == (0, 1600, 0.0)


@pytest.mark.skipif(not SUBSET.is_dir(), reason=f"needs the subset of Speech Commands at {SUBSET.name}")
def test_speech_commands_by_its_lists():
    found = load_clip_sets(SUBSET, "marvin")
    assert [len(found[part].words["marvin"]) for part in ("train", "validation", "test")] == [1424, 160, 80]
    assert [sum(map(len, found[part].words.values())) for part in found] == [8704, 1240, 1840]
