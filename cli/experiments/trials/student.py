"""Quantiles of Student's t distribution, without scipy, which is not installed beside the service."""

import math
from functools import cache

_MAX_FREE = 1e6
"""Degrees of freedom above which the distribution is the normal one to six digits of a quantile."""
NORMAL_QUANTILE = 1.959963984540054
"""The 0.975 quantile of the normal distribution."""
_MAX_TERMS = 500
_TINY = 1e-300


@cache
def find_student_quantile(num_free: float) -> float:
    """Find the 0.975 quantile for `num_free` degrees of freedom, above 0 and not necessarily whole.

    A variable with this distribution is between minus and plus the quantile in 95 of 100 cases. Bisection on the exact
    distribution, to 12 digits; that of the normal distribution from _MAX_FREE on.
    """
    if not num_free > 0.0:
        raise ValueError(f"{num_free} degrees of freedom are not above 0")
    if num_free >= _MAX_FREE:
        return NORMAL_QUANTILE
    low, high = 0.0, 2.0
    while compute_two_sided_probability(high, num_free) > 0.05:
        low, high = high, 2.0 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if compute_two_sided_probability(middle, num_free) > 0.05:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def compute_two_sided_probability(t: float, num_free: float) -> float:
    """Compute the probability of a value at least `t` away from 0: I_x(v/2, 1/2) with x = v / (v + t^2).

    I is the regularised incomplete beta function (Abramowitz & Stegun 1964, 26.7.1 and 26.5.27).
    """
    square = t * t
    x = num_free / (num_free + square)
    return _compute_incomplete_beta(num_free / 2.0, 0.5, x, square / (num_free + square))


def _compute_incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """Compute I_x(a, b) by its continued fraction (Abramowitz & Stegun 26.5.8). rest: 1 - x, without its rounding."""
    if x <= 0.0:
        return 0.0
    if rest <= 0.0:
        return 1.0
    factor = a * math.log(x) + b * math.log(rest) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    # The fraction converges fast below the mean of the distribution, and I_x(a, b) = 1 - I_(1-x)(b, a).
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(factor) * _evaluate_fraction(a, b, x) / a
    return 1.0 - math.exp(factor) * _evaluate_fraction(b, a, rest) / b


def _evaluate_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction from its front (Lentz's algorithm)."""
    ratio_above, ratio_below = 1.0, 1.0 / _avoid_zero(1.0 - (a + b) * x / (a + 1.0))
    value = ratio_below
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            ratio_below = 1.0 / _avoid_zero(1.0 + term * ratio_below)
            ratio_above = _avoid_zero(1.0 + term / ratio_above)
            change = ratio_above * ratio_below
            value *= change
        if abs(change - 1.0) < 1e-15:
            break
    return value


def _avoid_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
