import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.advice import LARGEST_BATCH, advise, largest_useful_batch

BATCHES = st.integers(1, LARGEST_BATCH)
SCALES = st.floats(1e-3, 1e11)


@given(batch=BATCHES, noise_scale=SCALES)
def test_time_and_data_are_exchanged_along_the_hyperbola_through_this_run(batch: int, noise_scale: float):
    advice = advise(batch, noise_scale)
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
    table = {row.batch: row for row in advise(4096, 16_384.0).table}
    assert list(table) == [1024, 2048, 4096, 8192, 16_384, 65_536, 262_144]
    assert (table[16_384].steps_of_fewest, table[16_384].samples_of_fewest) == (2, 2)
    # 1 + 16,384 / 4,096 = 5 times the fewest steps, and 1.25 times the fewest samples.
    assert (table[4096].steps_of_fewest, table[4096].samples_of_fewest) == (5, 1.25)
    assert (table[16_384].steps, table[16_384].samples) == (2 / 5, 2 / 1.25)


@pytest.mark.parametrize(
    ("noise_scale", "batch"),
    [(0.01, 1), (1.0, 1), (11.0, 8), (12.0, 16), (31_204.0, 32_768), (1e12, LARGEST_BATCH)],
)
def test_the_largest_useful_batch_is_the_power_of_two_nearest_the_noise_scale(noise_scale: float, batch: int):
    assert largest_useful_batch(noise_scale) == batch


def test_the_rows_go_from_a_sixteenth_of_the_noise_scale_to_sixteen_times_it_and_half_to_twice_the_batch():
    batches = [row.batch for row in advise(500, 8192.0).table]
    assert batches == [250, 500, 512, 1000, 2048, 8192, 32_768, 131_072]


@given(batch=BATCHES, noise_scale=st.none() | SCALES)
def test_every_number_is_one_that_json_has(batch: int, noise_scale: float | None):
    for row in advise(batch, noise_scale).table:
        assert all(math.isfinite(value) for value in row.model_dump().values())


def test_without_a_noise_scale_there_is_no_table():
    advice = advise(64, None)
    assert (advice.batch, advice.noise_scale, advice.largest_useful_batch, advice.table) == (64, None, None, [])
