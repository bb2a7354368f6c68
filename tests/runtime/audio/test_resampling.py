"""Resampling: pitch, loudness, length and gaps are kept, and invalid samples spoil nothing around them."""

from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.sound_files import RATE, noise, samples_of, soundfile
from penstock.runtime.audio.file import recording
from penstock.runtime.audio.resampling import Block, mono, resampled

soxr = pytest.importorskip("soxr", reason="needs soxr to resample")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@given(st.floats(width=32, allow_nan=False), st.integers(1, 64))
def test_the_mean_of_equal_channels_is_each_of_them(value: float, channels: int) -> None:
    assert mono(np.full((1, channels), value, np.float32)).tolist() == [value]


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_a_tone_keeps_its_pitch_its_loudness_and_its_length(tmp_path: Path, rate: int) -> None:
    count = 2 * rate + 7
    soundfile.write(tmp_path / "a.wav", 0.5 * np.sin(2 * np.pi * 440 * np.arange(count) / rate), rate, subtype="FLOAT")
    samples = samples_of(recording(tmp_path / "a.wav", RATE))
    assert abs(len(samples) - count * RATE / rate) <= 1
    middle = slice(2000, -2000)  # the filter rings at both ends
    wanted = 0.5 * np.sin(2 * np.pi * 440 * np.arange(len(samples)) / RATE)
    assert np.abs(samples - wanted)[middle].max() < 5e-4  # 60 dB below: pitch, loudness and place in time


def test_what_is_too_high_for_the_rate_is_gone(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", 0.5 * np.sin(2 * np.pi * 10_000 * np.arange(96_000) / 48_000), 48_000)
    assert np.abs(samples_of(recording(tmp_path / "a.wav", RATE)))[2000:-2000].max() < 5e-4


@pytest.mark.parametrize("rate", [8000, 44_100, 48_000])
def test_resampling_block_by_block_is_resampling_at_once(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", noise(30_000), rate)
    at_once = soxr.resample(noise(30_000)[:, 0] / np.float32(32768), rate, RATE)
    for block in (7, 1600):
        np.testing.assert_allclose(samples_of(recording(tmp_path / "a.wav", RATE, block)), at_once, atol=1e-7)


def test_a_file_shorter_than_the_filter_is_all_there(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(3), 8000)
    assert len(samples_of(recording(tmp_path / "a.wav", RATE))) == 6


def test_at_the_rate_that_is_wanted_samples_are_not_touched(tmp_path: Path) -> None:
    samples = np.array([0.5, np.nan, 3.0, -np.inf, 1e30, -0.25], np.float32)
    soundfile.write(tmp_path / "a.wav", samples, RATE, subtype="FLOAT")
    assert np.array_equal(samples_of(recording(tmp_path / "a.wav", RATE)), samples, equal_nan=True)


def test_two_infinities_are_mixed_without_a_word(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.array([[np.inf, -np.inf], [1, 0]], np.float32), RATE, subtype="FLOAT")
    assert np.array_equal(samples_of(recording(tmp_path / "a.wav", RATE)), np.array([np.nan, 0.5]), equal_nan=True)


@given(
    st.sampled_from([8000, 44_100, 48_000]),
    st.sets(st.integers(0, 5999), max_size=30),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e30]),
    st.integers(1, 3000),
)
@settings(max_examples=40, deadline=None)
def test_what_is_no_sound_spoils_nothing_around_it(
    folder: Path, rate: int, places: set[int], bad: float, block: int
) -> None:
    samples = noise(6000)[:, 0] / np.float32(32768)
    at = sorted(places)
    samples[at] = 0
    clean = soxr.resample(samples, rate, RATE)
    samples[at] = bad
    soundfile.write(folder / "broken.wav", samples, rate, subtype="FLOAT")
    came = samples_of(recording(folder / "broken.wav", RATE, block))
    ratio, half = Fraction(RATE, rate), Fraction(1, 2)
    marked = np.zeros(len(clean), bool)
    for place in at:
        marked[max(0, floor((place - half) * ratio)) : ceil((place + half) * ratio) + 1] = True
    assert np.array_equal(np.isnan(came), marked)
    np.testing.assert_allclose(came[~marked], clean[~marked], atol=1e-7)


def test_loud_sound_is_resampled_as_it_is(tmp_path: Path) -> None:
    """A writer that forgot to divide its int16: whoever listens is to see that it is on another scale."""
    soundfile.write(tmp_path / "a.wav", noise(9000).astype(np.float32), 48_000, subtype="FLOAT")
    assert 5000 < np.abs(samples_of(recording(tmp_path / "a.wav", RATE))).max() < 32768


@pytest.mark.parametrize("lost", [1, 2, 5, 48_000])
def test_a_gap_is_never_lost_in_rounding_and_times_do_not_drift(lost: int) -> None:
    blocks = list(resampled([Block(np.zeros(1001, np.float32), lost) for _ in range(30)], 48_000, RATE, 1600))
    assert sum(block.lost > 0 for block in blocks) == 30
    total = sum(block.lost + len(block.samples) for block in blocks)
    assert abs(total - 30 * (1001 + lost) / 3) <= (1 if lost > 3 else 30)  # a gap of less than a sample becomes one


@pytest.mark.parametrize("rate", [8000, 48_000])
@pytest.mark.parametrize("most", [50, 1600])
def test_sound_behind_a_gap_is_resampled_as_if_it_began_there(rate: int, most: int) -> None:
    first, second = (noise(4000, seed)[:, 0] / np.float32(32768) for seed in (1, 2))
    first[-3:] = second[100:110] = np.nan
    alone = [list(resampled([Block(part)], rate, RATE, most)) for part in (first, second)]
    came = list(resampled([Block(first), Block(second, lost=rate)], rate, RATE, most))
    assert [block.lost for block in came] == [RATE * (i == len(alone[0])) for i in range(len(came))]
    for block, wanted in zip(came, alone[0] + alone[1], strict=True):
        assert np.array_equal(block.samples, wanted.samples, equal_nan=True)
