"""Streams follow their spec, and the position of each word is known to the sample."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DataError
from penstock.wakeword.augmentation import change_clip, db_below, mix_in, noise_excerpt, scale_to_rms
from penstock.wakeword.clips import ClipSet, locate_word
from penstock.wakeword.streams import StreamSpec, mlperf_tiny, plan_scenes, synthesize_stream


def tone(hz: float, seconds: float = 0.5, level: float = 0.2) -> np.ndarray:
    """A word that lies between two silences."""
    wave = level * np.sin(2 * np.pi * hz * np.arange(round(seconds * 16_000)) / 16_000)
    gap = np.zeros(max(0, round((1 - seconds) / 2 * 16_000)))
    return (np.concatenate([gap, wave, gap]) * 32767).astype(np.int16)


def noise(seconds: float = 20, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3000, round(seconds * 16_000)).clip(-32768, 32767).astype(np.int16)


MATERIAL = ClipSet(
    {
        "up": [locate_word(tone(hz)) for hz in (400, 410, 420, 430)],
        "down": [locate_word(tone(hz)) for hz in (900, 910)],
        "left": [locate_word(tone(hz)) for hz in (1500, 1510, 1520)],
    },
    [noise(), noise(seed=1)],
)


@settings(max_examples=20)
@given(
    st.integers(0, 99),
    st.integers(0, 6),
    st.sampled_from([{"speech": 1.0}, {"silence": 0.2, "noise": 0.3, "speech": 0.5}, {"noise": 0.5, "speech": 0.5}]),
)
def test_a_stream_is_what_its_recipe_says(seed, times, shares):
    spec = StreamSpec(90.0, "up", times, shares=shares, scene_s=(5.0, 12.0))
    made = synthesize_stream(spec, MATERIAL, seed)
    assert len(made.samples) == 90 * 16_000
    assert made.samples.dtype == np.int16
    assert len(made.truths) == times
    for kind, share in shares.items():
        assert sum(end - begin for k, begin, end in made.scenes if k == kind) == pytest.approx(90 * share, abs=1e-3)
    speech = [(begin, end) for kind, begin, end in made.scenes if kind == "speech"]
    for truth in made.truths:
        assert any(begin <= truth.begin_s and truth.end_s <= end for begin, end in speech)
        assert truth.end_s - truth.begin_s == pytest.approx(0.5, abs=0.03)
    assert np.array_equal(made.samples, synthesize_stream(spec, MATERIAL, seed).samples)
    assert not np.array_equal(made.samples, synthesize_stream(spec, MATERIAL, seed + 100).samples)


def test_the_word_is_where_the_truth_says():
    made = synthesize_stream(StreamSpec(60.0, "up", 5, shares={"speech": 1.0}, snr_db=(30.0, 30.0)), MATERIAL, 3)
    for truth in made.truths:
        piece = made.samples[round(truth.begin_s * 16_000) : round(truth.end_s * 16_000)].astype(float)
        loudest = np.abs(np.fft.rfft(piece)).argmax() * 16_000 / len(piece)
        assert 395 <= loudest <= 435
    outside = made.samples.astype(float).copy()
    for truth in made.truths:
        outside[round(truth.begin_s * 16_000) - 200 : round(truth.end_s * 16_000) + 200] = 0
    power = np.abs(np.fft.rfft(outside)) ** 2
    hz = np.fft.rfftfreq(len(outside), 1 / 16_000)
    assert power[(hz > 395) & (hz < 435)].sum() < 0.01 * power.sum()


def test_each_clip_is_used_before_any_comes_again():
    scenes = plan_scenes(StreamSpec(200.0, "up", 7, shares={"speech": 1.0}), MATERIAL, np.random.default_rng(0))
    spoken = [id(clip) for scene in scenes for clip, _, is_word in scene.placed if is_word]
    assert len(spoken) == 7
    assert sorted(map(spoken.count, set(spoken))) == [1, 2, 2, 2]


def test_noise_lies_as_far_below_speech_as_asked_for():
    made = synthesize_stream(
        StreamSpec(30.0, "up", 2, shares={"speech": 1.0}, snr_db=(12.0, 12.0), gain_db=(3.0, 3.0)), MATERIAL, 0
    )
    gaps = np.concatenate(
        [made.samples[round(begin * 16_000) : round(begin * 16_000) + 1200] for _, begin, _ in made.scenes]
    )
    speech = 0.2 / np.sqrt(2) * 10 ** (3 / 20)
    level = np.sqrt(np.mean((gaps / 32768.0) ** 2))
    assert 20 * np.log10(speech / level) == pytest.approx(12, abs=1.5)


def test_noise_lies_as_far_below_each_word_however_loud_it_was_recorded():
    levels = (0.3, 0.1, 0.03, 0.01)
    quiet = ClipSet({"up": [locate_word(tone(400, level=level)) for level in levels]}, MATERIAL.noises)
    with_others = ClipSet({**MATERIAL.words, **quiet.words}, MATERIAL.noises)
    made = synthesize_stream(StreamSpec(60.0, "up", 8, shares={"speech": 1.0}, snr_db=(9.0, 9.0)), with_others, 1)
    sound = made.samples / 32768.0
    assert len(made.truths) == 8
    for truth in made.truths:
        begin, end = round(truth.begin_s * 16_000), round(truth.end_s * 16_000)
        before = sound[begin - 2400 : begin - 800]  # its clip is still silent there
        word, noise_there = np.mean(sound[begin:end] ** 2), np.mean(before**2)
        assert 10 * np.log10((word - noise_there) / noise_there) == pytest.approx(9, abs=1.5)


def test_silence_among_the_clips_stays_silence():
    silent = ClipSet({"up": [locate_word(np.zeros(16_000, np.int16))], "down": MATERIAL.words["down"]}, MATERIAL.noises)
    made = synthesize_stream(StreamSpec(60.0, "up", 3, shares={"speech": 1.0}), silent, 1)
    assert np.abs(made.samples).max() > 0


def test_long_clips_have_room_as_well():
    long = ClipSet({"up": [locate_word(tone(400, 2.5))], "down": [locate_word(tone(900, 2.9))]}, MATERIAL.noises)
    made = synthesize_stream(StreamSpec(90.0, "up", 4, shares={"speech": 1.0}), long, 3)
    words = sorted((truth.begin_s, truth.end_s) for truth in made.truths)
    assert len(words) == 4
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(words))
    assert words[-1][1] <= 90


def test_mlperf_tinys_stream():
    spec = mlperf_tiny("marvin")
    assert (spec.seconds, spec.times, spec.word) == (1200.0, 50, "marvin")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"seconds": 0.0}, "0 s and 1 words"),
        ({"shares": {"song": 1.0}}, "song"),
        ({"shares": {"speech": 0.5}}, "sum to 1"),
        ({"gap_s": (2.0, 1.0)}, r"gap_s .* \(2, 1\)"),
        ({"shares": {"noise": 1.0}}, "'up' .* no speech"),
    ],
)
def test_recipes_that_make_no_sense(fields, text):
    with pytest.raises(DataError, match=text):
        StreamSpec(**{"seconds": 60.0, "word": "up", "times": 1} | fields)


def test_a_word_that_does_not_fit_or_is_not_there():
    with pytest.raises(DataError, match="'up' 50 times"):
        synthesize_stream(StreamSpec(30.0, "up", 50, shares={"speech": 1.0}), MATERIAL, 0)
    with pytest.raises(DataError, match="no clip of 'right'"):
        synthesize_stream(StreamSpec(30.0, "right", 1), MATERIAL, 0)


def test_mixing():
    clip = MATERIAL.words["up"][0]
    faster, begin, end = change_clip(clip, speed=2.0)
    assert len(faster) == pytest.approx(8000, abs=1)
    assert end - begin == pytest.approx((clip.end - clip.begin) / 2, abs=1)
    louder, _, _ = change_clip(clip, gain_db=20 * np.log10(2))
    np.testing.assert_allclose(louder, clip.samples / 32768 * 2, atol=1e-6)
    assert len(noise_excerpt(np.arange(10, dtype=np.int16), 25, np.random.default_rng(0))) == 25
    assert scale_to_rms(np.zeros(4, np.float32), 0.5).tolist() == [0, 0, 0, 0]
    assert db_below(1.0, 20.0) == pytest.approx(0.1)
    sound = np.zeros(4, np.float32)
    mix_in(sound, np.ones(3), 9)
    mix_in(sound, np.ones(3), -9)
    assert sound.tolist() == [0, 0, 0, 0]
