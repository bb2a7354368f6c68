"""Exact confidence intervals for counts: binomial (Clopper-Pearson) and Poisson (Garwood), without scipy.

A bound is the parameter at which the observed count, or a more extreme one, has exactly the error probability. The tail
probabilities are regularized incomplete beta and gamma functions; the bound is found by bracketed Newton steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

EPSILON = 1e-16
TINY = 1e-300
MAX_STEPS = 200


def binomial_interval(count: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the two-sided interval for a proportion of which ``count`` successes in ``trials`` were observed.

    >>> [round(bound, 4) for bound in binomial_interval(3, 10)]
    [0.0667, 0.6525]
    """
    _check(count, confidence, trials)
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else _solve(lambda p: _beta_tails(count, trials - count + 1, p)[::2], tail, 0.0, 1.0)
    return low, _binomial_high(count, trials, tail)


def binomial_upper_bound(count: int, trials: int, confidence: float = 0.95) -> float:
    """Return the one-sided upper bound for a proportion of which ``count`` successes in ``trials`` were observed.

    >>> round(binomial_upper_bound(0, 299), 5), binomial_upper_bound(4, 4)
    (0.00997, 1.0)
    """
    _check(count, confidence, trials)
    return _binomial_high(count, trials, 1 - confidence)


def binomial_cdf(count: int, trials: int, probability: float) -> float:
    """Return the probability of at most ``count`` successes in ``trials``.

    >>> round(binomial_cdf(1, 3, 0.5), 12)
    0.5
    """
    if count >= trials:
        return 1.0
    if count == 0:
        return (1 - probability) ** trials
    return _beta_tails(count + 1, trials - count, probability)[1]


def poisson_interval(count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the two-sided interval for the mean of a Poisson variable observed as ``count``.

    >>> [round(bound, 4) for bound in poisson_interval(3)]
    [0.6187, 8.7673]
    """
    _check(count, confidence)
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else _solve(lambda mean: _gamma_tails(count, mean)[::2], tail, 0.0, float(count))
    return low, _poisson_high(count, tail)


def poisson_upper_bound(count: int, confidence: float = 0.95) -> float:
    """Return the one-sided upper bound for the mean of a Poisson variable observed as ``count``.

    >>> round(poisson_upper_bound(0), 4)
    2.9957
    """
    _check(count, confidence)
    return _poisson_high(count, 1 - confidence)


def _binomial_high(count: int, trials: int, tail: float) -> float:
    if count == trials:  # also without any trial
        return 1.0
    if count == 0:
        return -math.expm1(math.log(tail) / trials)
    return _solve(lambda p: _beta_tails(count + 1, trials - count, p)[1:], tail, 0.0, 1.0)


def _poisson_high(count: int, tail: float) -> float:
    if count == 0:
        return -math.log(tail)
    high = count + 1.0
    while _gamma_tails(count + 1, high)[1] > tail:
        high *= 2
    return _solve(lambda mean: _gamma_tails(count + 1, mean)[1:], tail, 0.0, high)


def _check(count: int, confidence: float, trials: int | None = None) -> None:
    if count < 0 or (trials is not None and count > trials):
        allowed = "at least 0" if trials is None else f"between 0 and trials = {trials}"
        raise ValueError(f"count must be {allowed}, got {count}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")


def _solve(tail_and_density: Callable[[float], tuple[float, float]], target: float, low: float, high: float) -> float:
    """Return where a tail probability, monotone in its parameter, equals ``target``.

    Newton's method on the logarithm of the tail, with bisection whenever a step leaves the bracket.

    Args:
        tail_and_density: the tail and the absolute value of its derivative.
    """
    rising = tail_and_density(low + (high - low) * 1e-6)[0] < tail_and_density(high - (high - low) * 1e-6)[0]
    x = (low + high) / 2
    for _ in range(MAX_STEPS):
        tail, density = tail_and_density(x)
        if tail == target:
            return x
        low, high = (x, high) if (tail < target) == rising else (low, x)
        step = math.log(tail / target) * tail / density if tail > 0 and density > 0 else math.inf
        guess = x - step if rising else x + step
        if not low < guess < high:
            guess = (low + high) / 2
        if abs(guess - x) <= 4 * EPSILON * abs(x):
            return guess
        x = guess
    return x


def _gamma_tails(a: float, x: float) -> tuple[float, float, float]:
    """Return the regularized incomplete gamma functions P(a, x) and Q(a, x), and the density at x."""
    if x <= 0:
        return 0.0, 1.0, 0.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while term > EPSILON * total:
            n += 1
            term *= x / n
            total += term
        lower = min(front * total, 1.0)
        return lower, 1 - lower, front / x
    upper = min(front * _gamma_fraction(a, x), 1.0)
    return 1 - upper, upper, front / x


def _gamma_fraction(a: float, x: float) -> float:
    """Return the continued fraction of Q(a, x), by Lentz's method."""
    b = x + 1 - a
    c, d = 1 / TINY, 1 / b
    h, i, delta = d, 0, 0.0
    while abs(delta - 1) > EPSILON and i < 100_000:
        i += 1
        numerator = -i * (i - a)
        b += 2
        d = 1 / _nonzero(numerator * d + b)
        c = _nonzero(b + numerator / c)
        delta = c * d
        h *= delta
    return h


def _beta_tails(a: float, b: float, x: float) -> tuple[float, float, float]:
    """Return the regularized incomplete beta function I_x(a, b), its complement, and the density at x."""
    if x <= 0:
        return 0.0, 1.0, 0.0
    if x >= 1:
        return 1.0, 0.0, 0.0
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - _log_beta(a, b))
    density = front / x / (1 - x)
    if x < (a + 1) / (a + b + 2):
        lower = min(front * _beta_fraction(a, b, x) / a, 1.0)
        return lower, 1 - lower, density
    upper = min(front * _beta_fraction(b, a, 1 - x) / b, 1.0)
    return 1 - upper, upper, density


def _log_beta(a: float, b: float) -> float:
    """Return log B(a, b); for a large argument by Stirling's series, because log-gammas would cancel."""
    small, large = sorted((a, b))
    if large < 20:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    ratio = (large - 0.5) * math.log1p(small / large) + small * math.log(a + b) - small  # Γ(a + b) / Γ(large)
    return math.lgamma(small) - ratio - _stirling_rest(a + b) + _stirling_rest(large)


def _stirling_rest(z: float) -> float:
    return 1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5) - 1 / (1680 * z**7)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of I_x(a, b), by Lentz's method."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    h, m, delta = d, 0, 0.0
    while abs(delta - 1) > EPSILON and m < 100_000:
        m += 1
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _nonzero(1 + numerator * d)
            c = _nonzero(1 + numerator / c)
            delta = c * d
            h *= delta
    return h


def _nonzero(value: float) -> float:
    return value if abs(value) > TINY else TINY
