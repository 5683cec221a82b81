"""AutoWU: its Gaussian process against the formulas, when the warm-up ends, and that a resumed one decides the same."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlrm.config import AutoWarmupConfig, BatchStage, DenseOptimizerConfig, JobConfig, compute_full_rows
from dlrm.optimizers import LearningRates
from dlrm.optimizers.auto_warmup import LENGTH_SCALE, NOISE_RATIOS, AutoWarmup, SmoothedCurve, WarmupState, smooth
from sharding.comm.process_groups import Ranks
from tests.rank_pool.pool import RankPools

CONFIG = AutoWarmupConfig(first_rate=1e-4, last_rate=1.0)
NUM_ROWS, STEP_ROWS = 100_000, 100


def kernel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.exp(-((one[:, None] - other[None]) ** 2) / (2 * LENGTH_SCALE**2))


def test_the_smoothed_curve_is_the_posterior_at_the_largest_marginal_likelihood():
    random = np.random.default_rng(1)
    x = np.sort(random.random(40))
    y = (x - 0.4) ** 2 + 0.02 * random.normal(size=40)
    likelihoods = list[tuple[float, float, float]]()
    for ratio in NOISE_RATIOS:
        shape = kernel(x, x) + ratio * np.eye(40)
        centered = y - y.mean()
        # The variance s at which -n/2 log s - 1/2 log |shape| - centered' shape^-1 centered / (2 s) is largest.
        variance = centered @ np.linalg.solve(shape, centered) / 40
        value = -20 * math.log(variance) - 0.5 * np.linalg.slogdet(shape)[1] - 20
        likelihoods.append((value, ratio, variance))
    _, ratio, variance = max(likelihoods)
    found = smooth(x, y)
    inverse = np.linalg.inv(kernel(x, x) + ratio * np.eye(40))
    between = kernel(found.points, x)
    np.testing.assert_allclose(found.mean, y.mean() + between @ inverse @ (y - y.mean()), atol=1e-9)
    covariance = variance * (kernel(found.points, found.points) - between @ inverse @ between.T)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-9)


def test_the_probability_that_the_least_lies_in_the_past_is_that_of_samples():
    mean = np.array([0.3, 0.1, 0.25])
    root = np.array([[0.2, 0.0, 0.0], [0.1, 0.1, 0.0], [0.05, 0.1, 0.2]])
    found = SmoothedCurve(np.linspace(0, 1, 3), mean, root @ root.T).compute_past_probability()
    samples = mean + np.random.default_rng(0).normal(size=(400_000, 3)) @ root.T
    assert found == pytest.approx((samples[:, :2] < samples[:, 2:]).mean(axis=0).max(), abs=3e-3)


def run_warmup(ranks: Ranks, losses: list[float], state: WarmupState | None = None, first: int = 0) -> WarmupState:
    """Take in the losses of steps from number `first` on, and return the state after them."""
    warmup = AutoWarmup(CONFIG, state or WarmupState(), NUM_ROWS, ranks)
    for step, loss in enumerate(losses, start=first):
        warmup.observe(loss, step * STEP_ROWS)
    return warmup.state


def draw_losses(least_at: float, num_steps: int = 600) -> list[float]:
    """Draw noisy losses of a run of 1,000 steps, the least after a share of it; infinity: they fall all the time."""
    done = np.arange(num_steps) / 1000
    rises = np.maximum(done - least_at, 0.0) ** 2
    return list(0.5 - 0.3 * done + 20 * rises + 0.01 * np.random.default_rng(0).normal(size=num_steps))


def test_the_warm_up_ends_soon_after_the_least_loss_at_the_rate_of_that(rank_pools: RankPools):
    losses = draw_losses(0.25)
    [state] = rank_pools.of(1).run(run_warmup, losses)
    assert state.ended_at is not None
    assert state.rate is not None
    # Least at 0.2575 of the run, where 0.3 = 40 (done - 0.25).
    assert 0.26 < state.ended_at / NUM_ROWS < 0.36
    assert CONFIG.rise(0.22) < state.rate < CONFIG.rise(0.29)
    # A step that is not finite counts for nothing.
    [same] = rank_pools.of(1).run(run_warmup, [*losses[:50], math.nan, *losses[51:]])
    assert same.ended_at == state.ended_at


def test_a_loss_that_falls_all_the_time_takes_the_rate_to_its_last_value(rank_pools: RankPools):
    [state] = rank_pools.of(1).run(run_warmup, draw_losses(math.inf))
    assert (state.ended_at, state.rate) == (NUM_ROWS // 2, CONFIG.last_rate)


@pytest.mark.parametrize("stop", [100, 270, 400])
def test_a_resumed_warm_up_decides_as_one_that_never_stopped(rank_pools: RankPools, stop: int):
    losses = draw_losses(0.25)
    straight = rank_pools.of(2).run(run_warmup, losses)
    [stopped, _] = rank_pools.of(2).run(run_warmup, losses[:stop])
    restored = WarmupState.model_validate_json(stopped.model_dump_json())
    assert rank_pools.of(2).run(run_warmup, losses[stop:], restored, stop) == straight
    assert straight[0] == straight[1]


@pytest.mark.parametrize("decay", ["polynomial", "cosine", "wsd"])
def test_after_a_fixed_end_the_rates_are_those_of_the_schedule(decay: str):
    def make_job(**schedule: Any) -> JobConfig:
        optimizer = {"learning_rate": 0.02, "schedule": {"scaling": "none", "decay": decay, **schedule}}
        return JobConfig.model_validate({"data": {"format": "synthetic"}, "dense_optimizer": optimizer})

    stage = BatchStage(STEP_ROWS, compute_full_rows(STEP_ROWS, NUM_ROWS), 1, 0, 0, NUM_ROWS)
    plain = LearningRates(make_job(warmup_fraction=0.3), NUM_ROWS, stage)
    job = make_job(autowu={"first_rate": 1e-4})
    state = WarmupState(ended_at=30_000, rate=0.02)
    found = LearningRates(job, NUM_ROWS, stage, AutoWarmup(CONFIG, state, NUM_ROWS, None))  # pyright: ignore[reportArgumentType], nothing is exchanged
    positions = range(30_000, NUM_ROWS, STEP_ROWS)
    assert [found.at(n, stage).dense for n in positions] == [plain.at(n, stage).dense for n in positions]
    rising = replace(found, warmup=AutoWarmup(CONFIG, WarmupState(), NUM_ROWS, None))  # pyright: ignore[reportArgumentType]
    # 1e-4 to 1 over half of the run: a tenth of that is a factor of 10^0.4.
    assert rising.at(5000, stage).dense == pytest.approx(1e-4 * 10**0.4)


@pytest.mark.parametrize(("name", "rate"), [("momentum", 1.0), ("sgd", 1.0), ("adam", 0.1), ("adafactor", 0.1)])
def test_the_largest_rate_of_a_warm_up_suits_the_optimizer(name: str, rate: float):
    for autowu, expected in [({}, rate), ({"last_rate": 0.5}, 0.5)]:
        optimizer = DenseOptimizerConfig.model_validate({"name": name, "schedule": {"autowu": autowu}})
        assert optimizer.schedule.autowu is not None
        assert optimizer.schedule.autowu.last_rate == expected
