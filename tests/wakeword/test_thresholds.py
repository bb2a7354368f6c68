"""Operating points: against simpler ways to choose one, and claims against many drawn streams."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from helpers.detections import metrics, times, words
from penstock.errors import DataError
from penstock.wakeword.metrics import Utterance, hours_needed, score_detections
from penstock.wakeword.thresholds import (
    OperatingPoint,
    choose_operating_point,
    det_curve,
    score_at,
)


@given(st.lists(st.lists(times, max_size=6), min_size=1, max_size=4), st.lists(words, max_size=6))
def test_streams_pool_as_one_long_stream(streams, truths):
    """Streams one after the other, far enough apart, are scored as one."""
    trials = [
        SimpleNamespace(alarms_at=lambda threshold, alarms=alarms: alarms, truths=truths, duration_s=100.0)
        for alarms in streams
    ]
    pooled = score_at(trials, 0.0)
    alarms = [100 * i + time for i, stream in enumerate(streams) for time in stream]
    shifted = [Utterance(100 * i + one.begin_s, 100 * i + one.end_s) for i in range(len(streams)) for one in truths]
    joined = score_detections(alarms, shifted, duration_s=100.0 * len(streams))
    assert (pooled.hits, pooled.misses, pooled.false_alarms) == (joined.hits, joined.misses, joined.false_alarms)
    assert pooled.hours == pytest.approx(joined.hours)
    assert pooled.latencies_s == pytest.approx(joined.latencies_s)


def test_thresholds_are_scored_in_order():
    scores = {5.0: 0.9, 20.0: 0.4, 30.0: 0.6}
    stream = SimpleNamespace(
        alarms_at=lambda t: [time for time, score in scores.items() if score >= t],
        truths=[Utterance(4, 5), Utterance(29, 30)],
        duration_s=60,
    )
    points = det_curve([stream], [0.7, 0.3, 0.5, 0.5, 0.95])
    assert [(one.threshold, one.metrics.misses, one.metrics.false_alarms) for one in points] == [
        (0.3, 0, 1),
        (0.5, 0, 0),
        (0.7, 1, 0),
        (0.95, 2, 0),
    ]
    assert choose_operating_point(points, per_hour=0).threshold == 0.5


def curve(*rows: tuple[float, int, int], hours: float = 10.0) -> list[OperatingPoint]:
    """Points of (threshold, misses, false alarms)."""
    return [OperatingPoint(threshold, metrics(misses, count, hours=hours)) for threshold, misses, count in rows]


def test_the_middle_of_equally_good_thresholds_is_chosen():
    points = curve((0, 0, 90), (1, 1, 6), (2, 1, 5), (3, 1, 1), (4, 1, 0), (5, 1, 0), (6, 1, 0), (7, 2, 0))
    assert choose_operating_point(points, per_hour=0.5).threshold == 4, "of 2 to 6"
    assert choose_operating_point(points, per_hour=0.05).threshold == 5, "of 4 to 6"
    assert choose_operating_point(points[::-1], per_hour=0.1).threshold == 5, (
        "of 3 to 6 the higher of the two in the middle"
    )
    assert choose_operating_point(points, per_hour=9).threshold == 0
    uneven = curve((1, 1, 0), (5, 1, 0), (5.1, 1, 0), (5.2, 1, 0), (9, 1, 0))
    assert choose_operating_point(uneven, per_hour=0.5).threshold == 5, "the middle of thresholds, not of their number"


def test_the_widest_range_is_taken_where_there_are_several():
    points = curve((1, 1, 0), (2, 2, 0), (3, 1, 0), (4, 1, 0), (5, 1, 0), (6, 1, 9), (7, 1, 0), (8, 1, 0))
    assert choose_operating_point(points, per_hour=0.5).threshold == 4


def test_with_confidence_the_sequence_ends_at_the_first_failure():
    """In 10 h 0, 1 and 2 false alarms bound the rate by 0.30, 0.47 and 0.63."""
    points = curve((1, 0, 0), (2, 1, 2), (3, 2, 1), (4, 3, 0), (5, 4, 0))
    assert choose_operating_point(points, per_hour=0.5).threshold == 1
    assert choose_operating_point(points, per_hour=0.5, confidence=0.95).threshold == 3, (
        "thresholds below 2 are not tested"
    )
    assert choose_operating_point(points, per_hour=0.65, confidence=0.95).threshold == 1
    assert choose_operating_point(points, per_hour=0.31, confidence=0.95).threshold == 4


def test_the_threshold_lies_between_what_misses_and_false_alarms_allow():
    points = curve((0, 0, 90), (1, 0, 2), (2, 1, 0), (3, 2, 0), (4, 2, 0), (5, 3, 0), (6, 9, 0))
    assert choose_operating_point(points, per_hour=0.5).threshold == 1, "where the false alarms begin"
    assert choose_operating_point(points, per_hour=0.5, max_miss_rate=0.06).threshold == 3, "3 of 50: from 1 to 5"
    assert choose_operating_point(points, per_hour=0.5, confidence=0.95, max_miss_rate=0.06).threshold == 2, (
        "the bounds allow none: fewest"
    )
    assert choose_operating_point(points, per_hour=0.5, confidence=0.95, max_miss_rate=0.13).threshold == 3, (
        "2 of 50 are at most 12.1 %"
    )


@pytest.mark.parametrize("missed", [-0.1, 1.0, math.nan])
def test_max_miss_rate_is_a_share(missed):
    with pytest.raises(DataError, match="max_miss_rate"):
        choose_operating_point(curve((1, 0, 0)), per_hour=0.5, max_miss_rate=missed)


def most_missed(misses: int, spoken: int, confidence: float) -> float:
    """Return the highest rate at which this few are missed with at least the remaining probability."""
    if misses == spoken:
        return 1.0
    return optimize.brentq(lambda rate: stats.binom.cdf(misses, spoken, rate) - (1 - confidence), 0, 1)


rows = st.tuples(st.integers(0, 5), st.integers(0, 8))


@given(
    st.lists(rows, min_size=1, max_size=12),
    st.sampled_from([0.05, 0.2, 0.5, 0.9]),
    st.sampled_from([None, 0.9]),
    st.sampled_from([0.0, 0.05, 0.11]),
)
def test_no_allowed_point_has_fewer_misses_but_for_what_may_be_missed(rows, per_hour, confidence, missed):
    points = curve(*((threshold, *row) for threshold, row in enumerate(rows)))
    allowed = []
    for point in reversed(points):
        value = point.metrics.false_alarms / 10
        if confidence is not None:
            value = optimize.brentq(lambda mean, n=value: stats.poisson.cdf(round(10 * n), 10 * mean) - 0.1, 1e-9, 99)
        if value <= per_hour:
            allowed.append(point)
        elif confidence is not None:
            break
    if not allowed:
        with pytest.raises(DataError, match="false alarms per hour"):
            choose_operating_point(points, per_hour=per_hour, confidence=confidence)
        return
    chosen = choose_operating_point(points, per_hour=per_hour, confidence=confidence, max_miss_rate=missed)
    fewest = min(point.metrics.misses for point in allowed)
    few = {n for n in range(51) if (n / 50 if confidence is None else most_missed(n, 50, 0.9)) <= missed} | {fewest}
    assert chosen in allowed and chosen.metrics.misses in few
    good = {point.threshold for point in allowed if point.metrics.misses in few}
    widths = [next(n for n in itertools.count() if start + n not in good) for start in range(len(rows))]
    up = next(n for n in itertools.count() if chosen.threshold + n not in good)
    down = next(n for n in itertools.count() if chosen.threshold - n not in good)
    assert up + down - 1 == max(widths) and 0 <= down - up <= 1, "the middle of the widest range, or just above it"


def drawn(draw: np.random.Generator, hours: float) -> list[OperatingPoint]:
    """Return points at thresholds 0 to 29: 2^(4 - threshold) false alarms per hour, misses grow."""
    levels = np.floor(draw.exponential(1 / math.log(2), draw.poisson(16 * hours)))  # each is raised up to its level
    return curve(*((t, t, int((levels >= t).sum())) for t in range(30)), hours=hours)


def test_a_claim_holds_with_its_confidence():
    """The true rate at each threshold is known: 1 per hour at 4, where 8 h have at most 4 once in ten times."""
    draw, trials, broken, naive = np.random.default_rng(0), 2000, 0, 0
    for _ in range(trials):
        points = drawn(draw, hours=8)
        broken += 2 ** (4 - choose_operating_point(points, per_hour=0.9999, confidence=0.9).threshold) >= 1
        naive += 2 ** (4 - choose_operating_point(points, per_hour=0.9999).threshold) >= 1
    assert stats.binom.sf(broken - 1, trials, 0.1) > 0.001, "too often for a confidence of 90 %"
    assert broken > 0.07 * trials, "nor is it wasteful"
    assert naive > 0.3 * trials, "without confidence nothing may be claimed"


def test_hours_that_are_summed_do_not_lose_a_point():
    third = metrics(0, 0, hours=0.1)
    total = metrics(1, 1, hours=0.1)
    for _ in range(9):
        total += third
    assert total.hours < 1, "rounded"
    assert choose_operating_point([OperatingPoint(0.0, total)], per_hour=1).metrics.false_alarms == 1


def test_a_claim_that_cannot_be_made_has_the_hours_needed():
    with pytest.raises(
        DataError,
        match=r"0.5 .*95 %.* 2 .*0 in 1.5 h.*threshold 8.*5.99 h",
    ):
        choose_operating_point(curve((7, 0, 0), (8, 1, 0), hours=1.5), per_hour=0.5, confidence=0.95)
    with pytest.raises(DataError, match=r"2 in 1.5 h.*threshold 8.*5.99 h.*12.6 h"):
        choose_operating_point(curve((8, 1, 2), hours=1.5), per_hour=0.5, confidence=0.95)
    too_many = "0.5 false alarms per hour.* 1 in 1.5 h, at threshold 8, 0.667"
    with pytest.raises(DataError, match=too_many):
        choose_operating_point(curve((7, 0, 2), (8, 1, 1), hours=1.5), per_hour=0.5)


def test_the_hours_needed_are_enough_to_choose_a_point():
    for per_hour, confidence, count in itertools.product((0.1, 0.5, 3), (0.9, 0.95), (0, 1, 7)):
        point = OperatingPoint(1.0, metrics(0, count, hours=hours_needed(per_hour, confidence, count)))
        assert choose_operating_point([point], per_hour=per_hour, confidence=confidence) == point


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (
            lambda: choose_operating_point(curve((1, 0, 0)), per_hour=0, confidence=0.9),
            "per_hour .* 0",
        ),
        (
            lambda: choose_operating_point(curve((1, 0, 0)), per_hour=math.nan),
            "per_hour .* nan",
        ),
        (lambda: choose_operating_point([], per_hour=1), "at least one operating point"),
        (
            lambda: choose_operating_point([OperatingPoint(0, metrics(0, 0, spoken=0))], per_hour=1),
            "never spoken",
        ),
    ],
)
def test_wrong_limits_and_points_are_errors(ask, text):
    with pytest.raises(DataError, match=text):
        ask()
