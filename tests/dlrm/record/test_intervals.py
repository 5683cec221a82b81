"""Intervals of means over seeds and of paired differences."""

import math
import statistics

import pytest
from scipy import stats

from dlrm.record.intervals import combine_differences, estimate_difference, estimate_mean, find_student_quantile


def test_a_mean_over_seeds_has_students_interval_and_one_seed_the_interval_of_the_rows() -> None:
    values = [0.70, 0.71, 0.75]
    estimate = estimate_mean(values, row_error=9.0)
    low, high = stats.t.interval(0.95, 2, loc=0.72, scale=stats.sem(values))
    assert (estimate.low, estimate.high, estimate.source) == (pytest.approx(low), pytest.approx(high), "seeds")
    lone = estimate_mean([0.7], row_error=0.01)
    assert (lone.half_width, lone.source) == (pytest.approx(0.0196, rel=1e-4), "rows")
    assert (estimate_mean([0.7]).half_width, estimate_mean([0.7]).source) == (None, "none")


@pytest.mark.parametrize("num_comparisons", [1, 7, 19])
@pytest.mark.parametrize("num_free", [*range(1, 12), 30, 99, 1000])
def test_students_quantile_is_that_of_scipy(num_free: int, num_comparisons: int) -> None:
    expected = stats.t.ppf(1 - 0.025 / num_comparisons, num_free)
    assert find_student_quantile(num_free, num_comparisons) == pytest.approx(expected, rel=1e-11)


def test_intervals_of_several_comparisons_hold_together_by_bonferroni() -> None:
    differences, errors, num = [0.010, 0.014, 0.012], [0.002, 0.003, 0.001], 7
    student, normal = stats.t.ppf(1 - 0.025 / num, 2), stats.norm.ppf(1 - 0.025 / num)
    between, of_rows = statistics.variance(differences) / 3, statistics.fmean(error**2 for error in errors)
    combined = combine_differences(differences, errors, num)
    assert combined.half_width == pytest.approx(math.hypot(student * math.sqrt(between), normal * math.sqrt(of_rows)))
    lone = estimate_difference([0.8], [0.7], (0.003, 0.004), num)
    assert lone.half_width == pytest.approx(normal * 0.005)
    exact = stats.ttest_ind([1.0, 2.0], [3.0, 4.0]).confidence_interval(1 - 0.05 / num)
    same = estimate_difference([1.0, 2.0], [3.0, 4.0], num_comparisons=num)
    assert (same.low, same.high) == (pytest.approx(exact.low), pytest.approx(exact.high))


def test_the_variance_of_a_combined_difference_adds_seeds_and_rows() -> None:
    differences, errors = [0.010, 0.014, 0.012], [0.002, 0.003, 0.001]
    combined = combine_differences(differences, errors)
    between, of_rows = statistics.variance(differences) / 3, statistics.fmean(error**2 for error in errors)
    assert combined.standard_error == pytest.approx(math.sqrt(between + of_rows), rel=1e-12)
    squares = stats.t.ppf(0.975, 2) ** 2 * between + stats.norm.ppf(0.975) ** 2 * of_rows
    assert combined.half_width == pytest.approx(math.sqrt(squares), rel=1e-9)
    assert combined.source == "seeds and rows"
    without = combine_differences(differences, None)
    assert (without.half_width, without.source) == (pytest.approx(stats.t.ppf(0.975, 2) * math.sqrt(between)), "seeds")


def test_a_difference_over_unpaired_seeds_has_welchs_interval_with_whole_degrees_of_freedom() -> None:
    first, second = [0.70, 0.71, 0.75, 0.72], [0.69, 0.693, 0.70]
    estimate = estimate_difference(first, second)
    one, other = statistics.variance(first) / 4, statistics.variance(second) / 3
    num_free = (one + other) ** 2 / (one**2 / 3 + other**2 / 2)
    error = math.sqrt(one + other)
    assert estimate.value == pytest.approx(statistics.fmean(first) - statistics.fmean(second))
    assert estimate.standard_error == pytest.approx(error)
    assert estimate.half_width == pytest.approx(stats.t.ppf(0.975, math.floor(num_free)) * error)
    # Exactly Welch's interval but for the rounding.
    interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert stats.t.ppf(0.975, num_free) * error == pytest.approx((interval.high - interval.low) / 2)
    same = estimate_difference([1.0, 2.0], [3.0, 4.0])
    # Equal variances and numbers give whole degrees of freedom.
    exact = stats.ttest_ind([1.0, 2.0], [3.0, 4.0]).confidence_interval()
    assert (same.low, same.high) == (pytest.approx(exact.low), pytest.approx(exact.high))
    assert estimate_difference([0.5, 0.5], [0.4, 0.4]).half_width == 0.0


def test_a_single_value_takes_the_spread_of_the_other_side_and_two_the_errors_of_rows() -> None:
    several = [0.70, 0.71, 0.75]
    exact = stats.ttest_ind([0.8], several, equal_var=True).confidence_interval()
    estimate = estimate_difference([0.8], several, (0.1, 0.1))
    assert (estimate.low, estimate.high) == (pytest.approx(exact.low), pytest.approx(exact.high))
    assert estimate.source == "seeds"
    lone = estimate_difference([0.8], [0.7], (0.003, 0.004))
    assert (lone.half_width, lone.source) == (pytest.approx(stats.norm.ppf(0.975) * 0.005), "rows")
    assert estimate_difference([0.8], [0.7], (0.003, None)).half_width is None
