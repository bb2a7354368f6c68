"""Metrics of detections: against simpler ways to count, and against definitions of the intervals."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import optimize, stats

from helpers.detections import metrics, times, words
from penstock.errors import DataError
from penstock.wakeword.metrics import DetectionMetrics, Utterance, hours_needed, match_alarms, score_detections

DURATION_S = 60.0

slacks = st.integers(0, 6).map(lambda step: step / 2)


def hits(alarm: float, truth: Utterance, slack_s: float) -> bool:
    return truth.begin_s <= alarm <= truth.end_s + slack_s


def most_pairs(alarms: list[float], truths: list[Utterance], slack_s: float) -> int:
    """Try every way to give words to alarms."""
    if not alarms:
        return 0
    first, *rest = alarms
    best = most_pairs(rest, truths, slack_s)
    for i, truth in enumerate(truths):
        if hits(first, truth, slack_s):
            best = max(best, 1 + most_pairs(rest, truths[:i] + truths[i + 1 :], slack_s))
    return best


@given(st.lists(times, max_size=5), st.lists(words, max_size=5), slacks)
@example(
    [1.0, 2.0], [Utterance(0, 4), Utterance(0.5, 1.0)], 0.0
)  # the first alarm must leave the long word to the second
def test_no_way_to_pair_has_more_hits(alarms, truths, slack_s):
    assert len(match_alarms(alarms, truths, slack_s=slack_s)) == most_pairs(alarms, truths, slack_s)


@given(st.lists(times, max_size=30), st.lists(words, max_size=30), slacks)
def test_an_assignment_by_linear_programming_has_as_many(alarms, truths, slack_s):
    fits = np.array([[hits(alarm, truth, slack_s) for truth in truths] for alarm in alarms], int)
    fits = fits.reshape(len(alarms), len(truths))
    rows, columns = optimize.linear_sum_assignment(fits, maximize=True)
    assert len(match_alarms(alarms, truths, slack_s=slack_s)) == fits[rows, columns].sum()


@given(st.lists(times, max_size=20), st.lists(words, max_size=20), slacks)
def test_pairs_are_one_to_one_and_fit(alarms, truths, slack_s):
    pairs = match_alarms(alarms, truths, slack_s=slack_s)
    assert len({alarm for alarm, _ in pairs}) == len({truth for _, truth in pairs}) == len(pairs)
    assert all(hits(alarms[alarm], truths[truth], slack_s) for alarm, truth in pairs)
    assert [alarms[alarm] for alarm, _ in pairs] == sorted(alarms[alarm] for alarm, _ in pairs)


@given(st.lists(times, max_size=12), st.lists(words, max_size=12), slacks, st.randoms(use_true_random=False))
def test_all_is_counted_once_in_any_order(alarms, truths, slack_s, random):
    found = score_detections(alarms, truths, duration_s=DURATION_S, slack_s=slack_s)
    assert found.hits + found.misses == found.spoken == len(truths)
    assert found.hits + found.false_alarms == len(alarms)
    assert found.hours == DURATION_S / 3600
    random.shuffle(alarms)
    random.shuffle(truths)
    again = score_detections(np.array(alarms), truths, duration_s=DURATION_S, slack_s=slack_s)
    assert replace(again, latencies_s=found.latencies_s) == found


@given(st.lists(times, max_size=12), st.lists(words, max_size=12), slacks)
def test_an_alarm_more_never_loses_a_hit(alarms, truths, slack_s):
    fewer = score_detections(alarms[1:], truths, duration_s=DURATION_S, slack_s=slack_s)
    more = score_detections(alarms, truths, duration_s=DURATION_S, slack_s=slack_s)
    assert fewer.hits <= more.hits
    assert fewer.false_alarms <= more.false_alarms + 1


def test_the_edges_of_a_word():
    truths = [Utterance(10, 11)]
    for alarm, hit in ((9.99, 0), (10.0, 1), (10.5, 1), (11.0, 1), (12.0, 1), (12.01, 0)):
        found = score_detections([alarm], truths, duration_s=60)
        assert (found.hits, found.misses, found.false_alarms) == (hit, 1 - hit, 1 - hit)
        assert found.latencies_s == (alarm - 11,) * hit


def test_a_word_that_wakes_twice_has_a_false_alarm():
    found = score_detections([10.4, 11.5], [Utterance(10, 11)], duration_s=60)
    assert (found.hits, found.misses, found.false_alarms) == (1, 0, 1)
    assert found.latencies_s == pytest.approx((-0.6,)), "the first alarm is the hit"


def test_a_stream_without_words_and_one_without_alarms():
    quiet = score_detections([], [], duration_s=7200)
    assert quiet == DetectionMetrics(hits=0, misses=0, false_alarms=0, hours=2.0, latencies_s=())
    assert math.isnan(quiet.miss_rate) and math.isnan(quiet.latency_s(0.5)) and math.isnan(quiet.latency_s(0.95))
    assert quiet.miss_interval() == (0, 1)
    assert quiet.false_alarms_per_hour == 0
    missed = score_detections([], [Utterance(1, 2)], duration_s=3600)
    assert missed.miss_rate == 1 and missed.miss_interval()[1] == 1


def test_latencies():
    truths = [Utterance(10.0 * i, 10.0 * i + 1) for i in range(1, 102)]
    alarms = [truth.end_s - 0.2 + i / 100 for i, truth in enumerate(truths)]
    found = score_detections(alarms, truths, duration_s=2000)
    assert found.latency_s(0.5) == pytest.approx(0.3) and found.latency_s(0.95) == pytest.approx(0.75)


@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_interval_of_misses_is_that_of_scipy(hits, misses, confidence):
    if hits + misses:
        theirs = stats.binomtest(misses, hits + misses).proportion_ci(confidence, method="exact")
        ours = metrics(misses, 0, spoken=hits + misses).miss_interval(confidence)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 200), st.floats(0.1, 100), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_interval_of_false_alarms_is_its_definition(count, hours, confidence):
    """At its ends, counts this low or this high have half of the remaining probability."""
    low, high = metrics(0, count, hours=hours).false_alarm_interval(confidence)
    assert low <= count / hours < high
    assert stats.poisson.cdf(count, high * hours) == pytest.approx((1 - confidence) / 2)
    if count:
        assert stats.poisson.sf(count - 1, low * hours) == pytest.approx((1 - confidence) / 2)
    bound = metrics(0, count, hours=hours).false_alarm_bound(confidence)
    assert stats.poisson.cdf(count, bound * hours) == pytest.approx(1 - confidence)


def test_intervals_of_the_books():
    assert metrics(3, 1, hours=1 / 3).miss_interval() == pytest.approx((0.01255, 0.16548), abs=1e-5)
    assert metrics(0, 4, hours=1.0).false_alarm_interval() == pytest.approx((1.0899, 10.2416), abs=1e-4)
    assert metrics(0, 0, hours=1.0).false_alarm_bound() == pytest.approx(-math.log(0.05))


def test_hours_needed_are_those_whose_bound_is_the_claim():
    assert hours_needed(0.5) == pytest.approx(-math.log(0.05) / 0.5)
    for per_hour, confidence, count in itertools.product((0.1, 0.5, 3), (0.9, 0.95), (0, 1, 7)):
        hours = hours_needed(per_hour, confidence, count)
        assert metrics(0, count, hours=hours).false_alarm_bound(confidence) == pytest.approx(per_hour)


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda: Utterance(2, 1), "2 to 1 s"),
        (lambda: Utterance(-1, 1), "-1 to 1 s"),
        (lambda: Utterance(math.nan, 1), "nan to 1 s"),
        (lambda: Utterance(1, math.inf), "1 to inf s"),
        (
            lambda: score_detections([1.0], [], duration_s=0),
            "duration_s .* 0",
        ),
        (lambda: score_detections([1.0], [], duration_s=math.nan), "duration_s .* nan"),
        (
            lambda: score_detections([math.nan], [], duration_s=9),
            "0 and 9 s, got one at nan",
        ),
        (lambda: score_detections([1, -2.5], [], duration_s=9), "-2.5 s"),
        (
            lambda: score_detections([9.5], [], duration_s=9),
            "9 s, got one at 9.5 s",
        ),
        (
            lambda: score_detections([], [Utterance(8, 9.5)], duration_s=9),
            "8 to 9.5 s .* 9 s",
        ),
        (
            lambda: score_detections([], [], duration_s=9, slack_s=-1),
            "slack_s .* -1",
        ),
        (lambda: metrics(0, 0).miss_interval(95), "confidence .* 95"),
        (lambda: metrics(0, 0).false_alarm_bound(1), "confidence .* 1"),
        (lambda: hours_needed(0), "per_hour .* 0"),
    ],
)
def test_wrong_times_and_counts_are_errors(ask, text):
    with pytest.raises(DataError, match=text):
        ask()


def test_a_time_at_the_very_end_is_in_the_stream():
    end = 0.1 + 0.2
    assert score_detections([end], [Utterance(0.1, end)], duration_s=0.3).hits == 1
