"""The ear: what is broken is a gap, what is loud is heard, and nothing is invented."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ShapeError
from penstock.runtime.streaming.input_guard import InputGuard, InputQuality

SAMPLES = st.lists(st.sampled_from([0.0, 0.25, -0.5, 1.0, float("nan"), float("inf")]), max_size=40)


@given(SAMPLES, st.lists(st.integers(0, 9), max_size=12))
def test_any_chunking_hears_the_same(samples: list[float], cuts: list[int]) -> None:
    stream = np.array(samples, np.float32)
    whole, parts = InputGuard(), InputGuard()
    wanted = list(whole.push(stream))
    pieces, at = [], 0
    for cut in [*cuts, len(stream)]:
        pieces += parts.push(stream[at : at + cut])
        at += cut
    heard = {p.start + i: float(v) for p in pieces for i, v in enumerate(p.samples)}
    assert heard == {p.start + i: float(v) for p in wanted for i, v in enumerate(p.samples)}
    assert heard == {i: v for i, v in enumerate(samples) if np.isfinite(v)}
    assert parts.input_quality == whole.input_quality
    assert whole.input_quality.invalid == sum(not np.isfinite(v) for v in samples)


def test_lost_samples_are_a_gap_of_their_length() -> None:
    ear = InputGuard()
    assert [p.start for p in ear.push(np.zeros(10, np.int16))] == [0]
    assert [p.start for p in ear.push(np.zeros(10, np.int16), lost=5)] == [15]
    assert ear.input_quality == InputQuality(valid=20, lost=5, gaps=1)


def test_loud_sound_is_limited_counted_and_heard() -> None:
    ear = InputGuard()
    (piece,) = ear.push(np.array([0.5, 1.5, -3.0, 1.0], np.float32))
    assert piece.samples.tolist() == [0.5, 1.0, -1.0, 1.0]
    assert ear.input_quality.clipped == 3
    (piece,) = ear.push(np.array([32767, -32768, 16384], np.int16))
    assert piece.samples.tolist() == [32767 / 32768, -1.0, 0.5]
    assert ear.input_quality.clipped == 5


def test_a_single_sample_far_beyond_full_scale_is_a_gap() -> None:
    ear = InputGuard()
    pieces = list(ear.push(np.array([0.5, 20.0, 0.25, 1e300], np.float64)))
    assert [(p.start, p.samples.tolist()) for p in pieces] == [(0, [0.5]), (2, [0.25])]
    assert ear.input_quality == InputQuality(valid=2, invalid=2, gaps=2)


def test_a_sensor_has_any_scale_and_breaks_as_a_whole() -> None:
    ear = InputGuard(axes=2)
    pieces = list(ear.push(np.array([[900.0, 1.0], [np.nan, 1.0], [3.0, 4.0]])))
    assert [(p.start, p.samples.tolist()) for p in pieces] == [(0, [[900.0, 1.0]]), (2, [[3.0, 4.0]])]
    assert ear.input_quality == InputQuality(valid=2, invalid=1, gaps=1)


@pytest.mark.parametrize(
    ("block", "lost", "text"),
    [
        (np.full(2000, 20_000.0, np.float32), 0, "between -1 and 1.*20000"),
        (np.zeros((4, 2), np.float32), 0, r"\(samples,\).*\(4, 2\)"),
        (np.zeros(4, np.int32), 0, "int32"),
        ([0.0], 0, "list"),
        (np.zeros(4, np.int16), -1, "lost.*-1"),
    ],
)
def test_what_is_no_sound_is_refused(block: np.ndarray, lost: int, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        list(InputGuard().push(block, lost=lost))


def blocks_of(samples: np.ndarray, size: int) -> list[np.ndarray]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


@pytest.mark.parametrize("size", [160, 1600, 200_000])
def test_the_scale_is_judged_at_the_beginning_whatever_the_blocks_are(size: int) -> None:
    good = np.random.default_rng(0).uniform(-0.5, 0.5, 80_000).astype(np.float32)
    burst = np.full(16_000, 500.0, np.float32)
    ear = InputGuard()
    for block in blocks_of(np.concatenate([good, burst, good]), size):
        list(ear.push(block))
    assert (ear.input_quality.invalid, ear.input_quality.gaps, ear.input_quality.valid) == (16_000, 1, 160_000)
    foreign = InputGuard()
    quiet_at_first = np.concatenate([np.zeros(40_000, np.float32), good * 32768])
    with pytest.raises(ShapeError, match="between -1 and 1"):
        [list(foreign.push(block)) for block in blocks_of(quiet_at_first, size)]
