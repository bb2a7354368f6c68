"""Judging streams: against dumber ways to count, against definitions of the intervals, and by drawing many streams."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import optimize, stats

from penstock.errors import DataError
from penstock.wakeword.metrics import DetectionMetrics, Utterance, hours_needed, match_alarms, score_detections
from penstock.wakeword.thresholds import (
    OperatingPoint,
    ScoredStream,
    choose_operating_point,
    det_curve,
    miss_rate_at,
    score_at,
)

DURATION_S = 60.0

# On a grid of half seconds, so that alarms fall on the edges of words and on each other.
times = st.integers(0, 40).map(lambda step: step / 2)
words = st.builds(lambda begin, length: Utterance(begin, begin + length / 2), times, st.integers(1, 8))
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
    judged = score_detections(alarms, truths, duration_s=DURATION_S, slack_s=slack_s)
    assert judged.hits + judged.misses == judged.spoken == len(truths)
    assert judged.hits + judged.false_alarms == len(alarms)
    assert judged.hours == DURATION_S / 3600
    random.shuffle(alarms)
    random.shuffle(truths)
    again = score_detections(np.array(alarms), truths, duration_s=DURATION_S, slack_s=slack_s)
    assert replace(again, latencies_s=judged.latencies_s) == judged


@given(st.lists(times, max_size=12), st.lists(words, max_size=12), slacks)
def test_an_alarm_more_never_loses_a_hit(alarms, truths, slack_s):
    fewer = score_detections(alarms[1:], truths, duration_s=DURATION_S, slack_s=slack_s)
    more = score_detections(alarms, truths, duration_s=DURATION_S, slack_s=slack_s)
    assert fewer.hits <= more.hits
    assert fewer.false_alarms <= more.false_alarms + 1


def test_the_edges_of_a_word():
    truths = [Utterance(10, 11)]
    for alarm, hit in ((9.99, 0), (10.0, 1), (10.5, 1), (11.0, 1), (12.0, 1), (12.01, 0)):
        judged = score_detections([alarm], truths, duration_s=60)
        assert (judged.hits, judged.misses, judged.false_alarms) == (hit, 1 - hit, 1 - hit)
        assert judged.latencies_s == (alarm - 11,) * hit


def test_a_word_that_wakes_twice_has_a_false_alarm():
    judged = score_detections([10.4, 11.5], [Utterance(10, 11)], duration_s=60)
    assert (judged.hits, judged.misses, judged.false_alarms) == (1, 0, 1)
    assert judged.latencies_s == pytest.approx((-0.6,)), "the first alarm is the one that woke"


def test_a_stream_without_words_and_one_without_alarms():
    quiet = score_detections([], [], duration_s=7200)
    assert quiet == DetectionMetrics(hits=0, misses=0, false_alarms=0, hours=2.0, latencies_s=())
    assert math.isnan(quiet.miss_rate) and math.isnan(quiet.median_latency_s) and math.isnan(quiet.p95_latency_s)
    assert quiet.miss_interval() == (0, 1)
    assert quiet.false_alarms_per_hour == 0
    deaf = score_detections([], [Utterance(1, 2)], duration_s=3600)
    assert deaf.miss_rate == 1 and deaf.miss_interval()[1] == 1


def test_latencies():
    truths = [Utterance(10.0 * i, 10.0 * i + 1) for i in range(1, 102)]
    alarms = [truth.end_s - 0.2 + i / 100 for i, truth in enumerate(truths)]
    judged = score_detections(alarms, truths, duration_s=2000)
    assert judged.median_latency_s == pytest.approx(0.3) and judged.p95_latency_s == pytest.approx(0.75)


def metrics(misses: int, false_alarms: int, *, spoken: int = 50, hours: float = 10.0) -> DetectionMetrics:
    return DetectionMetrics(spoken - misses, misses, false_alarms, hours, (0.2,) * (spoken - misses))


@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_interval_of_misses_is_that_of_scipy(hits, misses, confidence):
    if hits + misses:
        theirs = stats.binomtest(misses, hits + misses).proportion_ci(confidence, method="exact")
        ours = metrics(misses, 0, spoken=hits + misses).miss_interval(confidence)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 200), st.floats(0.1, 100), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_interval_of_false_alarms_is_what_its_definition_says(count, hours, confidence):
    """At its ends, so few or so many have a chance of exactly half of what is left."""
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
        point = OperatingPoint(1.0, metrics(0, count, hours=hours))
        assert choose_operating_point([point], per_hour=per_hour, confidence=confidence) == point


@given(st.lists(st.lists(times, max_size=6), min_size=1, max_size=4), st.lists(words, max_size=6))
def test_streams_pool_as_one_long_stream(streams, truths):
    """Streams one after the other, far enough apart, are judged as one."""
    trials = [ScoredStream(lambda threshold, alarms=alarms: alarms, truths, 100.0) for alarms in streams]
    pooled = score_at(trials, 0.0)
    alarms = [100 * i + time for i, stream in enumerate(streams) for time in stream]
    shifted = [Utterance(100 * i + one.begin_s, 100 * i + one.end_s) for i in range(len(streams)) for one in truths]
    whole = score_detections(alarms, shifted, duration_s=100.0 * len(streams))
    assert (pooled.hits, pooled.misses, pooled.false_alarms) == (whole.hits, whole.misses, whole.false_alarms)
    assert pooled.hours == pytest.approx(whole.hours)
    assert pooled.latencies_s == pytest.approx(whole.latencies_s)


def test_thresholds_are_judged_in_order():
    scores = {5.0: 0.9, 20.0: 0.4, 30.0: 0.6}
    scored_stream = ScoredStream(
        lambda t: [time for time, score in scores.items() if score >= t], [Utterance(4, 5), Utterance(29, 30)], 60
    )
    points = det_curve([scored_stream], [0.7, 0.3, 0.5, 0.5, 0.95])
    assert [(one.threshold, one.metrics.misses, one.metrics.false_alarms) for one in points] == [
        (0.3, 0, 1),
        (0.5, 0, 0),
        (0.7, 1, 0),
        (0.95, 2, 0),
    ]
    assert miss_rate_at(points, 0) == 0 and choose_operating_point(points, per_hour=0).threshold == 0.5


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
        "what lies below 2 is not tested any more"
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
def test_what_may_be_missed_is_a_share(missed):
    with pytest.raises(DataError, match="max_miss_rate"):
        choose_operating_point(curve((1, 0, 0)), per_hour=0.5, max_miss_rate=missed)


def most_missed(misses: int, spoken: int, confidence: float) -> float:
    """Return the highest rate at which so few are missed with at least the chance that is left."""
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
    if confidence is None:
        assert miss_rate_at(points, per_hour) == fewest / 50
    good = {point.threshold for point in allowed if point.metrics.misses in few}
    widths = [next(n for n in itertools.count() if start + n not in good) for start in range(len(rows))]
    up = next(n for n in itertools.count() if chosen.threshold + n not in good)
    down = next(n for n in itertools.count() if chosen.threshold - n not in good)
    assert up + down - 1 == max(widths) and 0 <= down - up <= 1, "the middle of the widest range, or just above it"


def drawn(draw: np.random.Generator, hours: float) -> list[OperatingPoint]:
    """Return points at thresholds 0 to 29: false alarms come at 2^(4 - threshold) an hour, misses grow."""
    levels = np.floor(draw.exponential(1 / math.log(2), draw.poisson(16 * hours)))  # each is raised up to its level
    return curve(*((t, t, int((levels >= t).sum())) for t in range(30)), hours=hours)


def test_a_claim_holds_as_often_as_it_says():
    """The true rate at each threshold is known: 1 an hour at 4, which 8 h hide at 4 false alarms, once in ten times."""
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


def test_a_claim_that_cannot_be_made_says_what_it_takes():
    with pytest.raises(
        DataError,
        match=r"0.5 false alarms per hour .* 95 % .* 2 per hour \(0 in 1.5 h, at threshold 8\).* 5.99 h",
    ):
        choose_operating_point(curve((7, 0, 0), (8, 1, 0), hours=1.5), per_hour=0.5, confidence=0.95)
    with pytest.raises(DataError, match=r"\(2 in 1.5 h, at threshold 8\)\. .* 5.99 h .* 12.6 h"):
        choose_operating_point(curve((8, 1, 2), hours=1.5), per_hour=0.5, confidence=0.95)
    too_many = "0.5 false alarms per hour.* 1 in 1.5 h, at threshold 8, 0.667"
    for ask in (lambda points: choose_operating_point(points, per_hour=0.5), lambda points: miss_rate_at(points, 0.5)):
        with pytest.raises(DataError, match=too_many):
            ask(curve((7, 0, 2), (8, 1, 1), hours=1.5))


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
            lambda: score_detections([[1.0]], [], duration_s=9),
            r"\(1, 1\)",
        ),
        (
            lambda: score_detections([], [Utterance(8, 9.5)], duration_s=9),
            "8 to 9.5 s .* 9 s",
        ),
        (
            lambda: score_detections([], [], duration_s=9, slack_s=-1),
            "slack_s .* -1",
        ),
        (lambda: match_alarms([math.inf], []), "one at inf s"),
        (
            lambda: DetectionMetrics(1, 0, 0, 1.0, ()),
            "1 hits, .* 0 latencies",
        ),
        (lambda: DetectionMetrics(0, 0, 0, 0.0, ()), "0.0 hours"),
        (lambda: metrics(0, 0).miss_interval(95), "confidence .* 95"),
        (lambda: metrics(0, 0).false_alarm_bound(1), "confidence .* 1"),
        (lambda: hours_needed(0), "per_hour .* 0"),
        (lambda: hours_needed(1, false_alarms=-1), "false_alarms .* -1"),
        (
            lambda: choose_operating_point(curve((1, 0, 0)), per_hour=0, confidence=0.9),
            "per_hour .* 0",
        ),
        (
            lambda: choose_operating_point(curve((1, 0, 0)), per_hour=math.nan),
            "per_hour .* nan",
        ),
        (lambda: choose_operating_point([], per_hour=1), "at least one operating point"),
        (lambda: OperatingPoint(math.inf, metrics(0, 0)), "threshold .* inf"),
        (lambda: score_at([], 0.5), "at least one stream"),
        (
            lambda: miss_rate_at([OperatingPoint(0, metrics(0, 0, spoken=0))], 1),
            "never spoken",
        ),
    ],
)
def test_refusals_say_what_to_do(ask, text):
    with pytest.raises(DataError, match=text):
        ask()


def test_a_time_at_the_very_end_is_in_the_stream():
    end = 0.1 + 0.2
    assert score_detections([end], [Utterance(0.1, end)], duration_s=0.3).hits == 1
