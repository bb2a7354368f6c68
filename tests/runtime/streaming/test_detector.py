"""A whole stream decided at once and window by window is the same; events mean what they say."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DataError
from penstock.runtime.streaming.detector import LIMIT, DetectorConfig, Event, Hysteresis, alarms, log_odds, smooth

SCORES = st.lists(st.sampled_from([-10.0, -3.0, -0.5, 0.1, 0.7, 2.0, 5.0, 10.0]), max_size=60)
DECISIONS = st.builds(
    lambda threshold, below, smoothing, refractory: DetectorConfig(threshold, threshold - below, smoothing, refractory),
    st.sampled_from([-1.0, 0.0, 0.7, 3.0]),
    st.sampled_from([0.0, 0.5, 4.0]),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.25, 1.0]),
)


def run(scores: list[float], detector: DetectorConfig, hop_s: float = 0.1) -> tuple[list[Event], list[float]]:
    decider = Hysteresis(detector, "marvin", window_s=1.0)
    events, smoothed = [], []
    for i, score in enumerate(scores):
        events += decider.push((i + 1) * hop_s, score)
        smoothed.append(decider.smoothed)
    return events + decider.end(), smoothed


@given(SCORES, DECISIONS)
def test_whole_stream_is_what_a_decider_says_one_by_one(scores: list[float], detector: DetectorConfig) -> None:
    events, smoothed = run(scores, detector)
    times = np.array([(i + 1) * 0.1 for i in range(len(scores))])
    assert np.array_equal(smooth(np.array(scores), detector.smoothing), smoothed)
    assert alarms(times, np.array(smoothed), detector) == [event.detected_s for event in events if not event.ended]


@given(SCORES, DECISIONS)
def test_events_are_told_when_decided_and_when_over(scores: list[float], detector: DetectorConfig) -> None:
    events, smoothed = run(scores, detector)
    opened, ended = [e for e in events if not e.ended], [e for e in events if e.ended]
    assert len(opened) == len(ended)
    for first, last in zip(opened, ended, strict=True):
        assert (first.start_s, first.detected_s, first.latency_s) == (last.start_s, last.detected_s, last.latency_s)
        assert first.score >= detector.threshold
        assert last.score >= first.score
        assert smoothed[round(last.peak_s * 10) - 1] == last.score
        assert first.latency_s >= 0
        assert first.start_s == pytest.approx(first.detected_s - first.latency_s - 1.0)
    times = [e.detected_s for e in opened]
    assert all(b - a >= detector.refractory_s - 1e-9 for a, b in itertools.pairwise(times))


def test_an_event_by_hand() -> None:
    events, smoothed = run([-10, 2, 4, 6, 0, -10, -10], DetectorConfig(threshold=3, off_threshold=1, smoothing=2))
    assert smoothed == [-10, -4, 3, 5, 3, -5, -10]
    begun, ended = events
    assert begun == Event(
        "marvin", pytest.approx(-0.8), pytest.approx(0.3), pytest.approx(0.3), pytest.approx(0.1), 3.0
    )
    assert (ended.peak_s, ended.score, ended.ended) == (pytest.approx(0.4), 5.0, True)


def test_hysteresis_keeps_one_event_where_the_score_wavers() -> None:
    wavering = [5.0, 2.0, 5.0, 2.0, 5.0]
    assert len(run(wavering, DetectorConfig(3, 1, 1, 0))[0]) == 2  # told twice
    assert len(run(wavering, DetectorConfig(3, 3, 1, 0))[0]) == 6


def test_a_second_event_has_a_rise_of_its_own() -> None:
    scores = [-10.0, 10.0, 10.0, 10.0, -10.0, -10.0, 1.0, 10.0, 10.0, 10.0]
    first, second = (e for e in run(scores, DetectorConfig(3, 0, 3, 0.3))[0] if not e.ended)
    assert first.start_s == pytest.approx(-0.8)
    assert second.start_s == pytest.approx(-0.3)
    assert second.latency_s <= 0.3


def test_another_threshold_keeps_the_depth_of_the_release() -> None:
    assert DetectorConfig(2, 0).at(-9.5) == DetectorConfig(-9.5, -9.99)
    assert DetectorConfig(2, 0).at(5) == DetectorConfig(5, 3)


def test_nothing_before_a_gap_supports_an_event_behind_it() -> None:
    decider = Hysteresis(DetectorConfig(3, 3, smoothing=2), "marvin", 1.0)
    assert decider.push(1.0, 9.0) == []
    assert decider.reset() == []
    assert decider.push(2.0, 9.0) == []
    assert [e.ended for e in decider.push(2.1, 9.0)] == [False]
    assert [e.ended for e in decider.reset()] == [True]


def test_log_odds_against_probabilities() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(log_odds(logits, 2), np.log(p[:, 2] / (1 - p[:, 2])), rtol=1e-4, atol=1e-5)
    assert log_odds(np.array([1e30, -1e30], np.float32), 1) == -LIMIT


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"threshold": 1, "off_threshold": 2}, "off_threshold.* 2"),
        ({"threshold": float("nan")}, "threshold.*nan"),
        ({"threshold": 0, "off_threshold": -10}, "off_threshold -10"),
        ({"threshold": 11}, "threshold 11"),
        ({"smoothing": 0}, "smoothing.* 0"),
        ({"refractory_s": -1}, "refractory_s.*-1"),
    ],
)
def test_decisions_that_make_no_sense(fields: dict[str, float], text: str) -> None:
    with pytest.raises(DataError, match=text):
        DetectorConfig(**fields)
