"""Means over seeds with 95 % intervals, and the paired differences of two methods."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

ROUNDING = 1e-9
"""Error of rounding in degrees of freedom, so that a whole number is not rounded down to the one below."""
Source = Literal["seeds", "rows", "seeds and rows", "none"]
"""Source of the chance that an interval covers: trainings with other seeds, other evaluation rows, or both."""


@cache
def find_student_quantile(num_free: int, num_comparisons: int = 1) -> float:
    """Find the 0.975 quantile of Student's t distribution with `num_free` degrees of freedom, by bisection.

    num_comparisons: number of intervals that shall hold together with 95 %. By Bonferroni's inequality they do if each
    one holds with 1 - 0.05 / num_comparisons.

    The probability within -t to t is a finite sum in the angle atan(t / sqrt(num_free)) (Abramowitz and Stegun 1964,
    26.7.3 and 26.7.4).
    """
    low, high, share = 0.0, math.pi / 2, 1 - 0.05 / num_comparisons
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _compute_student_share(middle, num_free) < share else (low, middle)
    return math.sqrt(num_free) * math.tan(low)


def _compute_student_share(angle: float, num_free: int) -> float:
    """Compute the probability of a value of Student's t within -t to t, where tan(angle) = t / sqrt(num_free)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = num_free % 2
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for power in range(1 + is_odd, num_free, 2):
        total += term
        term *= power / (power + 1) * cosine**2
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total


@dataclass(frozen=True)
class Estimate:
    """Mean with its 95 % interval, wider if several intervals shall hold together."""

    value: float
    standard_error: float | None
    half_width: float | None
    """Half of the width of the interval, which is symmetric; None if absent."""
    source: Source
    num_seeds: int

    def format(self, digits: int, *, is_signed: bool = False) -> str:
        """Format the mean with half of the width of its interval, if it has one: "0.8123 ± 0.0011".

        is_signed: whether a mean above 0 has a plus sign.
        """
        half = "" if self.half_width is None else f" \N{PLUS-MINUS SIGN} {self.half_width:.{digits}f}"
        return f"{self.value:{'+' if is_signed else ''}.{digits}f}{half}"

    @property
    def low(self) -> float | None:
        """Lower bound of the interval."""
        return None if self.half_width is None else self.value - self.half_width

    @property
    def high(self) -> float | None:
        """Upper bound of the interval."""
        return None if self.half_width is None else self.value + self.half_width


def estimate_mean(values: Sequence[float], row_error: float | None = None) -> Estimate:
    """Estimate the mean of `values`, one for each seed, with Student's interval: k - 1 degrees of freedom for k seeds.

    row_error: standard error over evaluation rows, the only one that a single value has. Raises ValueError for no
    values.
    """
    mean, count = statistics.fmean(values), len(values)
    if count > 1:
        error = statistics.stdev(values) / math.sqrt(count)
        return Estimate(mean, error, find_student_quantile(count - 1) * error, "seeds", count)
    return _estimate_from_rows(mean, row_error)


def combine_differences(
    differences: Sequence[float], row_errors: Sequence[float] | None, num_comparisons: int = 1
) -> Estimate:
    """Combine the paired differences d_1 … d_k of k seeds, which have all been measured on the same rows.

    row_errors: their standard errors s_i over samples of rows; None if unknown, so that the interval covers seeds
    alone. num_comparisons: number of such intervals that shall hold together with 95 %. The variance of the mean
    difference D over both seeds S and rows R is, by the law of total variance,

        Var(D) = E[Var(D | R)] + Var(E[D | R])

    On given rows the d_i are independent, so that their variance over k estimates the first term. The second one is
    the variance of the mean over seeds on other rows. It does not shrink with k, since all seeds share the rows. It is
    at most the mean of s_i^2 (Jensen's inequality), with equality if all seeds err on the same rows. Hence

        Var(D) <= (variance between seeds) / k + (mean of s_i^2)

    Banerjee (1960, "Approximate confidence interval for linear functions of means of k populations when the population
    variances are not equal", Sankhya 22) adds squares of half widths, here by Student's t with k - 1 degrees of freedom
    and by the normal distribution:

        half width^2 = t(k - 1)^2 (variance between seeds) / k + z^2 (mean of s_i^2)

    It covers at least 95 % for every number of seeds and every ratio of the two variances: the probability that a
    squared normal variable is below c is concave in c. So it is at least the weighted mean of the probabilities for
    either term alone, which are 95 % each. Satterthwaite's degrees of freedom cover 88 % with 2 seeds that differ more
    than the rows do.
    """
    mean, count = statistics.fmean(differences), len(differences)
    if count == 1:
        return _estimate_from_rows(mean, row_errors[0] if row_errors else None, num_comparisons)
    between = statistics.variance(differences) / count
    of_rows = statistics.fmean(error**2 for error in row_errors) if row_errors else 0.0
    half_width = math.hypot(
        find_student_quantile(count - 1, num_comparisons) * math.sqrt(between),
        _find_normal_quantile(num_comparisons) * math.sqrt(of_rows),
    )
    source: Source = "seeds and rows" if row_errors else "seeds"
    return Estimate(mean, math.sqrt(between + of_rows), half_width, source, count)


def estimate_difference(
    first: Sequence[float],
    second: Sequence[float],
    row_errors: tuple[float | None, float | None] = (None, None),
    num_comparisons: int = 1,
) -> Estimate:
    """Estimate the difference of two means, first less second, over seeds that are not paired.

    With several values on either side it has Welch's interval (1947, "The generalization of Student's problem when
    several different population variances are involved", Biometrika 34), its degrees of freedom rounded down:

        variance = s1^2 / k1 + s2^2 / k2
        degrees of freedom = variance^2 / ((s1^2 / k1)^2 / (k1 - 1) + (s2^2 / k2)^2 / (k2 - 1))

    A single value has no spread of its own, and gets the spread of the other side, as in Student's interval for equal
    variances. Two single values have the interval of their `row_errors`, standard errors over evaluation rows: as wide
    as for other rows on either side, and too wide if the rows are the same. num_comparisons: number of such intervals
    that shall hold together with 95 %. Raises ValueError for no values.
    """
    mean = statistics.fmean(first) - statistics.fmean(second)
    counts = len(first), len(second)
    if max(counts) == 1:
        errors = [error for error in row_errors if error is not None]
        return _estimate_from_rows(mean, math.hypot(*errors) if len(errors) == 2 else None, num_comparisons)
    if min(counts) == 1:
        several = max(first, second, key=len)
        error = statistics.stdev(several) * math.sqrt(1 + 1 / len(several))
        num_free = len(several) - 1
    else:
        parts = [statistics.variance(values) / len(values) for values in (first, second)]
        error = math.sqrt(sum(parts))
        scaled = sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
        num_free = max(math.floor(sum(parts) ** 2 / scaled + ROUNDING), 1) if scaled else sum(counts) - 2
    return Estimate(mean, error, find_student_quantile(num_free, num_comparisons) * error, "seeds", min(counts))


def _find_normal_quantile(num_comparisons: int) -> float:
    return statistics.NormalDist().inv_cdf(1 - 0.025 / num_comparisons)


def _estimate_from_rows(value: float, row_error: float | None, num_comparisons: int = 1) -> Estimate:
    if row_error is None:
        return Estimate(value, None, None, "none", 1)
    return Estimate(value, row_error, _find_normal_quantile(num_comparisons) * row_error, "rows", 1)
