import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.checkpoint.progress import RunProgress
from dlrm.gradient_stats.batch_advice import MAX_BATCH, advise, find_largest_useful_batch, get_settled_noise
from dlrm.gradient_stats.noise import NoiseInterval, NoiseState, StepNoise
from tests.dlrm.evaluated import evaluation

BATCHES = st.integers(1, MAX_BATCH)
SCALES = st.floats(1e-3, 1e11)


def about(noise_scale: float) -> NoiseInterval:
    return NoiseInterval(0.8 * noise_scale, noise_scale, 1.3 * noise_scale)


@given(batch=BATCHES, noise_scale=SCALES)
def test_time_and_data_are_exchanged_along_the_hyperbola_through_this_run(batch: int, noise_scale: float):
    advice = advise({batch: 1000}, about(noise_scale))
    for row in advice.table:
        assert (row.steps_of_fewest - 1) * (row.samples_of_fewest - 1) == pytest.approx(1, rel=1e-3)
        # E = S B, in units of this run.
        assert row.samples == pytest.approx(row.steps * row.batch / batch)
    own = next(row for row in advice.table if row.batch == batch)
    assert (own.steps, own.samples) == (1, 1)
    batches = [row.batch for row in advice.table]
    assert batches == sorted(set(batches))
    assert advice.largest_useful_batch in batches


def test_a_run_at_the_noise_scale_needs_twice_the_fewest_steps_and_samples():
    table = {row.batch: row for row in advise({4096: 1000}, about(16_384.0)).table}
    assert list(table) == [1024, 2048, 4096, 8192, 16_384, 65_536, 262_144]
    assert (table[16_384].steps_of_fewest, table[16_384].samples_of_fewest) == (2, 2)
    # 1 + 16,384 / 4,096 = 5 times the fewest steps, and 1.25 times the fewest samples.
    assert (table[4096].steps_of_fewest, table[4096].samples_of_fewest) == (5, 1.25)
    assert (table[16_384].steps, table[16_384].samples) == (2 / 5, 2 / 1.25)


def test_advice_for_a_grown_batch_counts_what_the_run_took():
    """Each step of batch B brings a run by 1 / (1 + N / B) of one of the fewest steps nearer to its loss."""
    noise_scale, samples = 8000.0, {1000: 400_000, 4000: 200_000, 32_000: 1_400_000}
    fewest_steps = sum(count / size / (1 + noise_scale / size) for size, count in samples.items())
    advice = advise(samples, about(noise_scale))
    assert (advice.first_batch, advice.batch) == (1000, 32_000)
    assert [row.batch for row in advice.table] == [512, 1000, 2048, 8192, 32_000, 32_768, 131_072]
    num_steps, num_samples = 400 + 50 + 43.75, 2_000_000
    for row in advice.table:
        assert row.steps * num_steps == pytest.approx(fewest_steps * (1 + noise_scale / row.batch))
        # E = S B, and the fewest samples are N times the fewest steps.
        assert row.samples * num_samples == pytest.approx(fewest_steps * noise_scale * (1 + row.batch / noise_scale))


@pytest.mark.parametrize(
    ("noise_scale", "batch"),
    [(0.01, 1), (1.0, 1), (11.0, 8), (12.0, 16), (31_204.0, 32_768), (1e12, MAX_BATCH)],
)
def test_the_largest_useful_batch_is_the_power_of_two_nearest_the_noise_scale(noise_scale: float, batch: int):
    assert find_largest_useful_batch(noise_scale) == batch


def test_rows_go_from_a_sixteenth_to_sixteen_noise_scales_and_around_the_batch():
    batches = [row.batch for row in advise({500: 1000}, about(8192.0)).table]
    assert batches == [250, 500, 512, 1000, 2048, 8192, 32_768, 131_072]


@given(batch=BATCHES, noise_scale=st.none() | SCALES)
def test_every_number_is_one_that_json_has(batch: int, noise_scale: float | None):
    for row in advise({batch: 1000}, about(noise_scale) if noise_scale else None).table:
        assert all(math.isfinite(value) for value in row.model_dump().values())


def test_without_a_noise_scale_there_is_no_table():
    advice = advise({64: 1000}, None)
    assert (advice.batch, advice.noise_scale, advice.largest_useful_batch, advice.table) == (64, None, None, [])


def progress_of(relative_noise: float, log_loss: float = 0.4, num_measured: int = 100) -> RunProgress:
    """After measurements around a noise scale of 5,000; the constant predictor's log-loss is 0.5."""
    noise = NoiseState()
    for number in range(num_measured):
        noise.add(StepNoise({"a": 10.0}, {"a": 0.002 * (1 + relative_noise * (1 if number % 2 else -1))}), 4096)
    return RunProgress(num_steps=100, noise=noise, last_evaluation=evaluation(log_loss))


def settled(progress: RunProgress) -> NoiseInterval | None:
    return get_settled_noise(progress.noise, progress.last_evaluation)


def test_the_noise_scale_is_told_with_its_bounds():
    found = settled(progress_of(0.5))
    assert found is not None
    advice = advise({4096: 1000}, found)
    assert advice.noise_scale == pytest.approx(5000, rel=0.05)
    assert advice.noise_scale_low == found.low
    assert advice.noise_scale_high == found.high
    assert found.low < 5000 < found.high < 1.5 * found.low


def test_nobody_goes_by_a_noise_scale_between_bounds_more_than_a_factor_of_four_apart():
    wide = progress_of(5.0)
    assert wide.noise.interval is not None
    assert wide.noise.interval.spread > 4
    assert settled(wide) is None


def test_nobody_goes_by_the_noise_of_a_model_that_is_no_better_than_a_constant():
    assert settled(progress_of(0.5, log_loss=0.499)) is not None
    assert settled(progress_of(0.5, log_loss=0.5)) is None
