"""Student's quantiles and the intervals made with them."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from cli.experiments.trials.intervals import combine_differences, estimate_mean
from cli.experiments.trials.student import compute_two_sided_probability, find_student_quantile

PUBLISHED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 30: 2.042, 120: 1.980}
"""Table of the 0.975 quantile in Abramowitz & Stegun 1964 (26.10), by degrees of freedom."""


@pytest.mark.parametrize(("num_free", "quantile"), PUBLISHED.items())
def test_quantiles_are_those_of_published_tables(num_free: int, quantile: float) -> None:
    assert find_student_quantile(num_free) == pytest.approx(quantile, abs=0.0006)


@pytest.mark.parametrize("num_free", [0.5, 1.0, 1.7, 2.0, 3.3, 8.0, 45.6, 1e3, 1e5, 9e5, 1e7])
def test_quantiles_of_any_degrees_of_freedom_are_those_of_scipy(num_free: float) -> None:
    assert find_student_quantile(num_free) == pytest.approx(stats.t.ppf(0.975, num_free), rel=3e-6)
    for t in (1e-3, 0.7, 2.0, 9.0):
        assert compute_two_sided_probability(t, num_free) == pytest.approx(2.0 * stats.t.sf(t, num_free), rel=1e-8)


def test_no_degrees_of_freedom_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="not above 0"):
        find_student_quantile(0.0)


def test_a_mean_over_seeds_has_students_interval_and_one_seed_that_of_the_rows() -> None:
    estimate = estimate_mean([0.70, 0.71, 0.75], row_error=9.0)
    low, high = stats.t.interval(0.95, 2, loc=0.72, scale=statistics.stdev([0.70, 0.71, 0.75]) / math.sqrt(3))
    assert (estimate.low, estimate.high, estimate.source) == (pytest.approx(low), pytest.approx(high), "seeds")
    lone = estimate_mean([0.7], row_error=0.01)
    assert (lone.half_width, lone.source) == (pytest.approx(0.0196, rel=1e-4), "rows")
    assert (estimate_mean([0.7]).half_width, estimate_mean([0.7]).source) == (None, "none")


def test_the_variance_of_a_combined_difference_is_that_between_seeds_and_that_of_the_rows() -> None:
    differences, errors = [0.010, 0.014, 0.012], [0.002, 0.003, 0.001]
    combined = combine_differences(differences, errors)
    between, of_rows = statistics.variance(differences) / 3, statistics.fmean(error**2 for error in errors)
    assert combined.standard_error == pytest.approx(math.sqrt(between + of_rows), rel=1e-12)
    squares = stats.t.ppf(0.975, 2) ** 2 * between + stats.norm.ppf(0.975) ** 2 * of_rows
    assert combined.half_width == pytest.approx(math.sqrt(squares), rel=1e-9)
    assert combined.source == "seeds and rows"
    without = combine_differences(differences, None)
    assert (without.half_width, without.source) == (pytest.approx(stats.t.ppf(0.975, 2) * math.sqrt(between)), "seeds")
    equal = combine_differences([0.01, 0.01], [0.002, 0.002])
    assert equal.half_width == pytest.approx(1.96 * 0.002, rel=1e-4)


@pytest.mark.parametrize("num_seeds", [2, 3, 5])
@pytest.mark.parametrize("ratio", [0.01, 0.1, 1.0, 10.0, 100.0])
def test_intervals_of_differences_cover_95_percent_for_few_seeds_and_any_ratio_of_their_variance_to_that_of_rows(
    num_seeds: int, ratio: float
) -> None:
    # The rows err alike for all seeds, with a variance of 1, and each seed by itself, with a variance of `ratio`. Of
    # normal variables the mean is independent of the variance, so that the probability of the mean given the half
    # width is exact: only the differences between seeds are drawn.
    generator = np.random.default_rng([num_seeds, round(100 * ratio)])
    differences = math.sqrt(ratio) * generator.normal(size=(2000, num_seeds))
    widths = [combine_differences(row, [1.0] * num_seeds).half_width or 0.0 for row in differences.tolist()]
    coverage = np.mean(1.0 - 2.0 * stats.norm.sf(widths, scale=math.sqrt(1.0 + ratio / num_seeds)))
    assert coverage >= 0.945
