"""Training windows: they contain the whole wake word, most of another word, and depend only on the seed."""

import numpy as np
import pytest

from penstock.errors import DataError
from penstock.runtime.streaming.features import LogMel
from penstock.wakeword.clips import ClipSet, locate_word
from penstock.wakeword.windows import AugmentConfig, WindowSampler, draw_windows, wakeword_classes

MARKS = 20_000


def marked(length: int, sign: int) -> np.ndarray:
    """A word that begins and ends with a click that cannot be overlooked."""
    word = np.full(length, 1500 * sign, np.int16)
    word[0] = word[-1] = MARKS * sign
    return np.concatenate([np.zeros(3200, np.int16), word, np.zeros(3200, np.int16)])


MATERIAL = ClipSet(
    {"up": [locate_word(marked(6400, 1))], "down": [locate_word(marked(8000, -1))]}, [np.full(40_000, 900, np.int16)]
)
STILL = AugmentConfig(speed=(1.0, 1.0), gain_db=(0.0, 0.0), clean=1.0, neighbour=0.0, masked=0.0)


def drawing(augment=STILL, seed=0):
    return WindowSampler(MATERIAL, "up", augment, 16_000, np.random.default_rng(seed))


def test_a_window_shows_the_whole_word_and_most_of_others():
    sampler = drawing()
    seen = {0: 0, 1: 0, 2: 0}
    places = []
    for _ in range(400):
        samples, label = sampler.draw()
        seen[label] += 1
        loud = np.abs(samples * 32768)
        if label == 1:
            assert (loud > MARKS - 2).sum() == 2  # both ends
            places.append(int(loud.argmax()))
        if label == 2:
            assert (samples < -1000 / 32768).sum() >= 0.6 * 8000 - 200
        if label == 0:
            assert (loud > 0).all() or (loud == 0).all()
    assert seen[1] == pytest.approx(100, abs=30)
    assert seen[2] == pytest.approx(220, abs=40)
    assert min(places) < 600  # anywhere in the window
    assert max(places) > 8500


def test_noise_neighbours_speed_and_gain_change_what_is_heard():
    still = drawing().draw()[0]
    for change in ({"clean": 0.0}, {"neighbour": 1.0}, {"gain_db": (-6.0, -6.0)}, {"speed": (0.8, 0.8)}):
        fields = {**STILL.__dict__, **change}
        assert not np.array_equal(drawing(AugmentConfig(**fields)).draw()[0], still), change


def test_the_same_seed_draws_the_same_windows():
    frontend = LogMel()
    x, y = draw_windows(MATERIAL, "up", 300, frontend=frontend, frames=49, seed=5)
    again, labels = draw_windows(MATERIAL, "up", 300, frontend=frontend, frames=49, seed=5)
    other, _ = draw_windows(MATERIAL, "up", 300, frontend=frontend, frames=49, seed=6)
    assert x.shape == (300, 40, 49)
    assert np.array_equal(x, again)
    assert np.array_equal(y, labels)
    assert not np.array_equal(x, other)
    assert set(y.tolist()) == {0, 1, 2}
    assert wakeword_classes(MATERIAL, "up") == ("background", "up", "down")


def test_masks_wipe_out_a_part_and_no_more():
    x, _ = draw_windows(MATERIAL, "up", 64, frontend=LogMel(), frames=49, augment=AugmentConfig(masked=1.0), seed=1)
    bare, _ = draw_windows(MATERIAL, "up", 1, frontend=LogMel(), frames=49, augment=STILL, seed=1)
    wiped = [(window[0:1] == window).mean() for window in x]
    assert max(wiped) < 1
    assert np.isfinite(x).all()
    assert np.isfinite(bare).all()


def test_shares_that_leave_nothing_are_refused():
    with pytest.raises(DataError, match="word and other"):
        AugmentConfig(word=0.5, other=0.5)
