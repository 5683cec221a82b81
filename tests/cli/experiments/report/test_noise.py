"""Median noise scale of runs of which some have a lower bound alone, and its agreement with a critical batch."""

import math
import random
from pathlib import Path

import pytest

from cli.experiments.report.critical_batch import CriticalBatchFit
from cli.experiments.report.noise import NoiseScale, decide_agreement, find_median_noise
from cli.experiments.sweep.results import TrialResult
from tests.cli.experiments.report.recorded import make_trial


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


def test_the_bounds_hold_the_median_of_noise_scales_that_were_hidden_at_random(trial: TrialResult) -> None:
    generator = random.Random(5)
    for _ in range(200):
        true = [generator.lognormvariate(8.0, 1.0) for _ in range(9)]
        # The larger a noise scale, the sooner it is hidden.
        runs = [
            measure(trial, None, generator.uniform(0.2, 1.0) * value)
            if generator.random() < value / 9000.0
            else measure(trial, value, 0.5 * value)
            for value in true
        ]
        found = find_median_noise(runs)
        assert found is not None
        assert found.low <= sorted(true)[4] <= found.high


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
