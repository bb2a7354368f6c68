"""Any chunking of a stream gives the features and the windows of the whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DataError
from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.features import LogMel, Mfcc, features
from penstock.runtime.streaming.frame_ring import FrameRing
from penstock.runtime.streaming.frontend import AudioFrontend, Sensor
from penstock.runtime.streaming.windower import Windower

SENSES = [LogMel(), Mfcc(coefficients=13), LogMel(rate_hz=8000, window_ms=25, hop_ms=30, high_hz=3800, mels=20)]
STREAM = np.random.default_rng(0).uniform(-0.5, 0.5, 20_000).astype(np.float32)


@pytest.mark.parametrize("frontend", SENSES)
@given(cuts=st.lists(st.integers(1, 4000), max_size=12))
@settings(max_examples=25)
def test_any_chunking_gives_the_features_of_the_whole(frontend: LogMel, cuts: list[int]) -> None:
    front = AudioFrontend(frontend)
    parts = [front.push(part) for part in np.split(STREAM, np.cumsum(cuts)[np.cumsum(cuts) < len(STREAM)])]
    np.testing.assert_allclose(np.concatenate(parts), features(STREAM, frontend).T, rtol=1e-5, atol=1e-4)


def test_nothing_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = np.fft.rfft
    monkeypatch.setattr(np.fft, "rfft", lambda a, n: (seen.append(len(a)), real(a, n))[1])
    front = AudioFrontend(LogMel())
    for start in range(0, 16_000, 130):
        front.push(STREAM[start : min(16_000, start + 130)])
    assert sum(seen) == LogMel().frames(16_000)


def test_a_front_keeps_less_than_a_frame_and_a_hop() -> None:
    front = AudioFrontend(LogMel())
    for _ in range(50):
        front.push(STREAM)
        assert len(front._ring._kept) < 480 + 320
        assert front._ring._kept.base is None


def windower(frontend: LogMel | Sensor, frames: int) -> Windower:
    values = frontend.values
    return Windower(StreamConfig(frontend, frames, 1, mean=(0.0,) * values, std=(1.0,) * values, words=(1,)))


def test_behind_a_gap_all_begins_anew() -> None:
    cut = windower(LogMel(), 1)
    cut.push(STREAM[:777])
    gap, *windows = cut.push(STREAM[:1000], lost=5)
    assert (gap.time_s, gap.values) == (782 / 16_000, None)
    wanted = features(STREAM[:1000], LogMel())
    np.testing.assert_allclose(np.concatenate([w.values for w in windows], 1), wanted, rtol=1e-5, atol=1e-4)


def test_a_sensor_is_taken_as_it_is() -> None:
    cut = windower(Sensor(rate_hz=50, axes=6), 2)
    samples = np.arange(12.0, dtype=np.float32).reshape(2, 6)
    assert cut.push(samples[:1]) == []
    (window,) = cut.push(samples[1:])
    assert np.array_equal(window.values, samples.T) and window.time_s == 2 / 50
    (zeros,) = windower(Sensor(50, 6), 1).push(np.zeros((1, 6), np.float32))
    assert not zeros.silent, "a sensor at rest is no digital silence"
    with pytest.raises(DataError, match=r"axes.* 0 and 50"):
        Sensor(50, 0)


def test_silence_is_the_floor() -> None:
    silence = np.zeros(16_000, np.float32)
    assert all(window.silent and window.values is None for window in windower(LogMel(), 3).push(silence))
    assert not any(window.silent for window in windower(LogMel(), 3).push(silence + 1e-3 * STREAM[:16_000]))


@given(st.integers(1, 7), st.integers(1, 9), st.lists(st.integers(0, 11), max_size=10))
def test_windows_are_those_of_the_whole(frames: int, hop: int, cuts: list[int]) -> None:
    stream = np.arange(80, dtype=np.float32).reshape(40, 2)
    ring = FrameRing(frames, hop, (2,))

    def windows(part: np.ndarray) -> list[np.ndarray]:
        kept, count = ring.push(part)
        return [kept[i * hop : i * hop + frames] for i in range(count)]

    got = [w for part in np.split(stream, [c for c in np.cumsum(cuts) if c < 40]) for w in windows(part)]
    wanted = [stream[i : i + frames] for i in range(0, 40 - frames + 1, hop)]
    assert np.array_equal(np.array(got), np.array(wanted))
