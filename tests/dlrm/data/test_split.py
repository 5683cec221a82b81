from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.data.split import Split, split_by_hash


@given(st.integers(0, 200_000), st.floats(0.01, 0.99))
def test_every_row_is_on_one_side(num_rows: int, eval_fraction: float) -> None:
    train, evaluation = split_by_hash(num_rows, eval_fraction) if num_rows else split_by_hash(1, eval_fraction)
    together = np.sort(np.concatenate([train, evaluation]))
    np.testing.assert_array_equal(together, np.arange(max(num_rows, 1)))


@pytest.mark.parametrize("eval_fraction", [0.01, 0.1, 0.5])
def test_the_share_held_out_is_the_one_asked_for(eval_fraction: float) -> None:
    _, evaluation = split_by_hash(300_000, eval_fraction)
    assert abs(len(evaluation) / 300_000 - eval_fraction) < 5 * np.sqrt(eval_fraction / 300_000)


def test_more_rows_and_a_larger_share_leave_held_out_rows_held_out() -> None:
    _, few = split_by_hash(50_000, 0.1)
    _, many = split_by_hash(100_000, 0.1)
    _, larger_share = split_by_hash(50_000, 0.2)
    np.testing.assert_array_equal(many[many < 50_000], few)
    assert set(few) < set(larger_share)


@given(st.integers(1, 200_000), st.floats(0.01, 0.99), st.lists(st.integers(0, 200_000), max_size=5))
def test_any_cut_into_blocks_holds_out_the_same_rows(num_rows: int, eval_fraction: float, cuts: list[int]) -> None:
    edges = sorted({0, num_rows, *(cut for cut in cuts if cut < num_rows)})
    split = Split("hash", eval_fraction, num_rows)
    is_held_out = np.concatenate([split.is_held_out(start, stop) for start, stop in pairwise(edges)])
    np.testing.assert_array_equal(np.flatnonzero(is_held_out), split_by_hash(num_rows, eval_fraction)[1])


@pytest.mark.parametrize(
    ("num_rows", "eval_fraction", "num_held_out"), [(10, 0.1, 1), (100, 0.29, 29), (7, 0.5, 4), (3, 0.1, 0)]
)
def test_the_tail_is_the_last_share_to_the_nearest_row(num_rows: int, eval_fraction: float, num_held_out: int) -> None:
    split = Split("tail", eval_fraction, num_rows)
    is_held_out = np.concatenate([split.is_held_out(0, 2), split.is_held_out(2, num_rows)])
    assert is_held_out.tolist() == [False] * (num_rows - num_held_out) + [True] * num_held_out
