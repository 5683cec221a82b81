import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.data.split import hash_split


@given(st.integers(0, 200_000), st.floats(0.01, 0.99))
def test_every_row_is_on_one_side(num_rows: int, eval_fraction: float) -> None:
    train, evaluation = hash_split(num_rows, eval_fraction) if num_rows else hash_split(1, eval_fraction)
    together = np.sort(np.concatenate([train, evaluation]))
    np.testing.assert_array_equal(together, np.arange(max(num_rows, 1)))


@pytest.mark.parametrize("eval_fraction", [0.01, 0.1, 0.5])
def test_the_share_held_out_is_the_one_asked_for(eval_fraction: float) -> None:
    _, evaluation = hash_split(300_000, eval_fraction)
    assert abs(len(evaluation) / 300_000 - eval_fraction) < 5 * np.sqrt(eval_fraction / 300_000)


def test_more_rows_and_a_larger_share_leave_held_out_rows_held_out() -> None:
    _, few = hash_split(50_000, 0.1)
    _, many = hash_split(100_000, 0.1)
    _, larger_share = hash_split(50_000, 0.2)
    np.testing.assert_array_equal(many[many < 50_000], few)
    assert set(few) < set(larger_share)
