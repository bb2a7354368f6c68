"""Exact intervals: the same as scipy's quantiles, and what their definition says."""

import math

import pytest
from scipy import stats

from penstock.runtime.intervals import (
    binomial_cdf,
    binomial_interval,
    binomial_upper_bound,
    poisson_interval,
    poisson_upper_bound,
)

CONFIDENCES = (0.5, 0.8, 0.95, 0.99, 0.999999)
TRIALS = (1, 2, 3, 10, 59, 300, 1000, 12_345, 1_000_000)


def close(bound, expected):
    assert bound == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("trials", TRIALS)
def test_binomial_is_scipys(trials, confidence):
    tail = (1 - confidence) / 2
    for count in sorted({0, 1, 2, trials // 100, trials // 3, trials // 2, trials - 2, trials - 1, trials}):
        if not 0 <= count <= trials:
            continue
        low, high = binomial_interval(count, trials, confidence)
        close(low, stats.beta.ppf(tail, count, trials - count + 1) if count else 0.0)
        close(high, stats.beta.isf(tail, count + 1, trials - count) if count < trials else 1.0)
        bound = binomial_upper_bound(count, trials, confidence)
        close(bound, stats.beta.isf(1 - confidence, count + 1, trials - count) if count < trials else 1.0)


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 199, 200, 201, 1000, 54_321, 500_000])
def test_poisson_is_scipys(count, confidence):
    tail = (1 - confidence) / 2
    low, high = poisson_interval(count, confidence)
    close(low, stats.gamma.ppf(tail, count) if count else 0.0)
    close(high, stats.gamma.isf(tail, count + 1))
    close(poisson_upper_bound(count, confidence), stats.gamma.isf(1 - confidence, count + 1))


@pytest.mark.parametrize("trials", TRIALS[:-1])
@pytest.mark.parametrize("probability", [0.001, 0.01, 0.3, 0.9])
def test_binomial_cdf_is_scipys(trials, probability):
    for count in sorted({0, 1, 5, int(trials * probability), trials // 2, trials}):
        assert binomial_cdf(count, trials, probability) == pytest.approx(
            stats.binom.cdf(count, trials, probability), rel=1e-9, abs=1e-200
        )


def test_bounds_have_the_error_that_was_asked_for():
    bound = binomial_upper_bound(2, 50, 0.9)
    close(sum(math.comb(50, k) * bound**k * (1 - bound) ** (50 - k) for k in range(3)), 0.1)
    mean = poisson_upper_bound(2, 0.9)
    close(sum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(3)), 0.1)


def test_without_a_trial_anything_is_possible():
    assert binomial_interval(0, 0) == (0.0, 1.0)
    assert binomial_upper_bound(0, 0) == 1.0


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: binomial_interval(-1, 3), "count"),
        (lambda: binomial_upper_bound(4, 3), "trials = 3"),
        (lambda: poisson_interval(-1), "count"),
        (lambda: poisson_upper_bound(1, 1.0), "confidence"),
    ],
)
def test_impossible_counts_are_refused(call, name):
    with pytest.raises(ValueError, match=name):
        call()
