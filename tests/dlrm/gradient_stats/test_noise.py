"""The noise scale over a run: how it is averaged, and between which bounds it lies."""

import math

import numpy as np
import pytest
import scipy.stats

from dlrm.gradient_stats.layer_noise import LayerNoise
from dlrm.gradient_stats.noise import MIN_MEASUREMENTS, NoiseState, StepNoise, approximate_student_quantile


def state_of(traces: np.ndarray, norms: np.ndarray) -> NoiseState:
    """After these measurements, one every 4,096 samples; both are split over two layers."""
    state = NoiseState()
    for trace, norm in zip(traces, norms, strict=True):
        state.add(StepNoise({"a": 0.25 * trace, "b": 0.75 * trace}, {"a": 2 * norm, "b": -norm}), 4096)
    return state


def drawn(num: int, seed: int, relative_noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Around a noise scale of 5,000."""
    random = np.random.default_rng(seed)
    return 10 + 0.3 * random.normal(size=num), 0.002 * (1 + relative_noise * random.normal(size=num))


def test_later_measurements_count_more_by_the_square_of_their_number():
    traces, norms = drawn(50, 1)
    weights = np.array([i * (i + 1) for i in range(1, 51)]) / sum(i * (i + 1) for i in range(1, 51))
    state = state_of(traces, norms)
    assert sum(state.traces.values()) == pytest.approx((weights * traces).sum())
    assert state.noise_scale == pytest.approx((weights * traces).sum() / (weights * norms).sum())
    assert weights[-10:].sum() == pytest.approx(0.5, abs=0.02)


def test_samples_count_alike_where_the_batch_grows():
    """The weight of the samples so far grows with their third power, as at one size. The preset's run is grown."""
    sizes = [(0.0, 16_384), *((0.2 + 0.02 * i, round(16_384 * 32 ** (i / 20))) for i in range(1, 21))]
    state, num_run_samples, num_samples, weighted = NoiseState(), 130_000_000, 0, 0.0
    while num_samples < num_run_samples:
        size = next(size for start, size in reversed(sizes) if num_samples >= start * num_run_samples)
        middle = (num_samples + size / 2) / num_run_samples
        state.add(StepNoise({"position": middle, "last fifth": float(middle > 0.8)}, {"a": 1.0}), size)
        num_samples += size
        weighted += 3 * middle**3 * size / num_run_samples
    assert state.num_samples == num_samples
    # The integral of 3 s^2 from 0.8 to 1 is 0.488; of 3 s^3 over the run, 0.75.
    assert state.traces["last fifth"] == pytest.approx(0.488, abs=0.01)
    assert state.traces["position"] == pytest.approx(weighted, abs=0.005)


def test_a_few_last_batches_with_most_of_the_weight_tell_no_bounds():
    traces, norms = drawn(102, 7)
    state = NoiseState()
    for number, (trace, norm) in enumerate(zip(traces, norms, strict=True)):
        state.add(StepNoise({"a": trace}, {"a": norm}), 1024 if number < 100 else 100_000)
    assert state.interval is None


def test_bounds_are_where_trace_and_norm_are_so_many_standard_errors_apart():
    traces, norms = drawn(40, 2)
    weights = np.array([i * (i + 1.0) for i in range(1, 41)])
    weights /= weights.sum()
    interval = state_of(traces, norms).interval
    assert interval is not None
    for bound, sign in ((interval.low, 1), (interval.high, -1)):
        difference = traces - bound * norms
        mean = (weights * difference).sum()
        scatter = (weights * (difference - mean) ** 2).sum()
        num_free = 1 / np.square(weights).sum() - 1
        error = math.sqrt(scatter / num_free)
        assert mean == pytest.approx(sign * scipy.stats.t.ppf(0.975, num_free) * error, rel=1e-3)


@pytest.mark.parametrize("num_free", [5, 8, 11.5, 30, 1000])
def test_the_quantile_is_students(num_free: float):
    assert approximate_student_quantile(num_free) == pytest.approx(scipy.stats.t.ppf(0.975, num_free), rel=0.01)


@pytest.mark.parametrize("num", [MIN_MEASUREMENTS, 100])
def test_the_true_noise_scale_lies_between_its_bounds_in_95_of_100_runs(num: int):
    intervals = [state_of(*drawn(num, seed, relative_noise=0.5)).interval for seed in range(400)]
    assert all(interval is not None for interval in intervals)
    inside = sum(interval is not None and interval.low <= 5000 <= interval.high for interval in intervals)
    # Of 400 with probability 0.95: 380, with a standard deviation of 4.4.
    assert 362 <= inside <= 396


NUM_DIMENSIONS, BLOCKS, BATCH, BATCHES_PER_WINDOW = 8, 64, 2048, 16
DRIFTS = {"none": 0.0, "slow": 0.3, "strong": 2.0}


def measure_log(random: np.random.Generator, num_windows: int, drift: float) -> tuple[NoiseState, float]:
    """Measure one epoch of a frozen model over shuffle windows; return the true noise scale, too.

    drift: V / |G|^2, V the variance of the mean gradient of a window's blocks. Formulas as in docs/methods.md.
    """
    true = random.normal(size=NUM_DIMENSIONS)
    true /= np.linalg.norm(true)
    # All drift along two directions; blocks are drawn without replacement, and their mean is 0.
    blocks = random.normal(size=(2 * num_windows, BLOCKS // 2, 2)) @ random.normal(size=(2, NUM_DIMENSIONS))
    blocks -= blocks.mean(axis=(0, 1))
    blocks *= math.sqrt(drift * BLOCKS / max(np.square(blocks).sum(axis=2).mean(), 1e-9))
    trace = 3000.0
    state = NoiseState()
    for window in range(num_windows):
        for _ in range(BATCHES_PER_WINDOW):
            noise = random.normal(size=(2, NUM_DIMENSIONS)) * math.sqrt(trace / NUM_DIMENSIONS / (BATCH / 2))
            first, second = true + blocks[2 * window : 2 * window + 2].mean(axis=1) + noise
            whole, across = np.square((first + second) / 2).sum() - trace / BATCH, first @ second
            norm = whole / num_windows + (1 - 1 / num_windows) * across
            state.add(StepNoise({"a": trace}, {"a": norm}, drift=whole - across, window=window), BATCH)
    return state, trace


@pytest.mark.parametrize(
    ("drift", "num_windows"),
    [
        *(pytest.param(drift, 3, id=f"{name}-3") for name, drift in DRIFTS.items()),
        pytest.param(DRIFTS["none"], 12, id="none-12"),
        *(pytest.param(DRIFTS[name], 12, id=f"{name}-12", marks=pytest.mark.slow) for name in ("slow", "strong")),
    ],
)
def test_bounds_hold_the_truth_where_the_log_drifts_over_its_windows(num_windows: int, drift: float):
    random = np.random.default_rng(5)
    found = [measure_log(random, num_windows, drift) for _ in range(200)]
    intervals = [(state.interval, truth) for state, truth in found]
    inside = [interval is not None and interval.low <= truth <= interval.high for interval, truth in intervals]
    # Of 200 with probability 0.95: 190, with a standard deviation of 3.1.
    assert sum(inside) >= 182
    given = np.mean([interval is not None and interval.spread <= 4 for interval, _ in intervals])
    # A log without drift is not taken for one with it where there are many windows.
    assert given >= 0.9 if (num_windows, drift) == (12, 0.0) else given <= 0.5


def test_more_measurements_make_the_bounds_closer():
    few, many = state_of(*drawn(60, 3)).interval, state_of(*drawn(2000, 3)).interval
    assert few is not None
    assert many is not None
    assert few.spread > 1.5 * many.spread
    assert many.low == pytest.approx(5000, rel=0.2)
    assert many.spread < 1.3


def test_a_gradient_lost_in_its_noise_has_no_upper_bound():
    state = state_of(*drawn(40, 4, relative_noise=50.0))
    assert state.interval is not None
    assert state.interval.high == math.inf
    assert state.interval.spread == math.inf
    assert state.noise_scale is None


def test_a_gradient_lost_in_its_noise_has_a_lower_bound_all_the_same():
    intervals = [state_of(*drawn(40, seed, relative_noise=50.0)).interval for seed in range(400)]
    lows = np.array([interval.low for interval in intervals if interval is not None])
    # The squared norm is at most about twice its standard error, 0.1 / sqrt(22): 22 of the 40 measurements count.
    assert np.median(lows) == pytest.approx(10 / (2 * 0.1 / math.sqrt(22)), rel=0.3)
    assert (lows <= 5000).mean() > 0.95


def test_few_measurements_tell_no_bounds():
    assert state_of(*drawn(MIN_MEASUREMENTS - 1, 5)).interval is None
    assert state_of(*drawn(MIN_MEASUREMENTS, 5)).interval is not None


def test_weight_and_bias_are_one_layer():
    assert LayerNoise([("a.weight", 2), ("a.bias", 1), ("b.weight", 3)]).sizes == [3, 3]
