"""Fit of the critical batch, the median noise scale, and whether they agree."""

import math
import random
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cli.experiments.report.critical_batch import (
    CriticalBatchFit,
    NoiseScale,
    decide_agreement,
    find_median_noise,
    fit_critical_batch,
)
from cli.experiments.trials.results import TrialResult
from tests.cli.experiments.report.recorded import make_trial

BATCHES = (1024, 4096, 16_384, 65_536)


def compute_samples(batch: int, critical: float, fewest: float = 1e6) -> float:
    return fewest * (1.0 + batch / critical)


@pytest.mark.parametrize("critical", [300.0, 5000.0, 200_000.0])
def test_points_on_the_curve_give_back_its_critical_batch(critical: float) -> None:
    fit = fit_critical_batch({batch: [compute_samples(batch, critical)] * 2 for batch in BATCHES})
    assert fit is not None
    assert fit.critical_batch == pytest.approx(critical, rel=1e-5)
    assert fit.min_samples == pytest.approx(1e6, rel=1e-5)
    assert fit.min_steps == pytest.approx(1e6 / critical, rel=1e-5)
    assert (fit.low, fit.high) == (pytest.approx(critical, rel=1e-4), pytest.approx(critical, rel=1e-4))
    assert not fit.is_at_limit
    for batch in BATCHES:
        steps, samples = fit.compute_steps(batch), fit.compute_samples(batch)
        assert samples == pytest.approx(steps * batch, rel=1e-9)
        assert (steps / fit.min_steps - 1) * (samples / fit.min_samples - 1) == pytest.approx(1.0, rel=1e-9)


def test_the_bounds_are_where_the_sum_of_squares_has_grown_by_students_quantile() -> None:
    generator = random.Random(3)
    samples = {
        batch: [compute_samples(batch, 20_000.0) * generator.lognormvariate(0.0, 0.1) for _ in range(3)]
        for batch in BATCHES
    }
    fit = fit_critical_batch(samples)
    assert fit is not None
    assert fit.low is not None
    assert fit.high is not None
    assert fit.low < fit.critical_batch < fit.high
    logs = np.log([samples[batch] for batch in BATCHES])

    def compute_squares(critical: float) -> float:
        rests = logs - np.log1p(np.array(BATCHES) / critical)[:, None]
        return np.square(rests - rests.mean()).sum()

    scatter = logs.var(axis=1, ddof=1).mean()
    for bound in (fit.low, fit.high):
        grown = compute_squares(bound) - compute_squares(fit.critical_batch)
        assert grown == pytest.approx(stats.t.ppf(0.975, 8) ** 2 * scatter, rel=1e-3)


def test_two_batches_are_too_few_and_one_seed_has_no_interval() -> None:
    points = {batch: [compute_samples(batch, 5000.0)] for batch in BATCHES}
    assert fit_critical_batch({batch: points[batch] for batch in BATCHES[:2]}) is None
    fit = fit_critical_batch(points)
    assert fit is not None
    assert (fit.low, fit.high) == (None, None)


@pytest.mark.parametrize(("power", "is_above"), [(0.0, True), (1.0, False)], ids=["equal samples", "equal steps"])
def test_batches_that_are_all_on_one_side_are_told(power: float, is_above: bool) -> None:
    fit = fit_critical_batch({batch: [1e6 * float(batch) ** power] for batch in BATCHES})
    assert fit is not None
    assert fit.is_at_limit
    assert (fit.critical_batch > BATCHES[-1]) is is_above


def test_a_bound_at_the_end_of_the_search_is_none_of_the_critical_batch() -> None:
    """Seeds that scatter by 5 % say nothing of how far above 8,192 a critical batch of 100,000 is."""
    generator = random.Random(5)
    samples = {
        batch: [compute_samples(batch, 100_000.0) * generator.lognormvariate(0.0, 0.05) for _ in range(3)]
        for batch in (1024, 2048, 4096, 8192)
    }
    fit = fit_critical_batch(samples)
    assert fit is not None
    assert fit.high == math.inf
    assert fit.low is not None
    assert 0.0 < fit.low < fit.critical_batch


@pytest.fixture
def trial(tmp_path: Path) -> TrialResult:
    return make_trial(tmp_path, "adam", 1024, 0, keeps_scores=False)


def measure(trial: TrialResult, value: float | None, low: float | None) -> TrialResult:
    return trial.model_copy(update={"metrics": {"noise_scale": value, "noise_scale_low": low}})


def test_runs_whose_noise_hides_the_gradient_count_as_above_their_lower_bound(trial: TrialResult) -> None:
    known = [measure(trial, value, 0.9 * value) for value in (1000.0, 2000.0, 4000.0)]
    hidden = [measure(trial, None, low) for low in (3000.0, 5000.0)]
    assert find_median_noise(known) == NoiseScale(2000.0, 2000.0)
    # Both hidden ones are above 2000: without them it would be the median.
    assert find_median_noise([*known, hidden[1], hidden[1]]) == NoiseScale(4000.0, 4000.0)
    # The third of 1000, 2000, at least 3000, 4000, at least 5000.
    assert find_median_noise([*known, *hidden]) == NoiseScale(3000.0, 4000.0)
    assert find_median_noise([known[0], *hidden]) == NoiseScale(3000.0, math.inf)
    assert find_median_noise([measure(trial, None, None), measure(trial, None, 0.0)]) is None


@pytest.mark.parametrize(
    ("bounds", "noise", "verdict"),
    [
        ((5000.0, 8000.0), (6000.0, 6000.0), "agree"),
        ((5000.0, 13_000.0), (6000.0, 6000.0), "open"),
        ((13_000.0, 20_000.0), (6000.0, 6000.0), "disagree"),
        ((1000.0, 2900.0), (6000.0, math.inf), "disagree"),
        ((5000.0, 8000.0), (6000.0, math.inf), "open"),
        ((None, None), (6000.0, 6000.0), "open"),
    ],
)
def test_a_critical_batch_agrees_where_all_of_both_intervals_is_within_a_factor_of_two(
    bounds: tuple[float | None, float | None], noise: tuple[float, float], verdict: str
) -> None:
    fit = CriticalBatchFit(6000.0, 1e6, *bounds)
    assert decide_agreement(fit, NoiseScale(*noise)) == verdict
