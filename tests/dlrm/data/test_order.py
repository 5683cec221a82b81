import hashlib

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrm.data.order import BLOCKS_PER_WINDOW, MAX_WINDOW_ROWS, MIN_WINDOW_ROWS, SampleOrder
from dlrm.data.rows import Runs

SHORT_WINDOWS = 1 << 20
"""Bytes of a row with which a window has MIN_WINDOW_ROWS."""
BLOCK_ROWS = MIN_WINDOW_ROWS // BLOCKS_PER_WINDOW
"""Then."""


def epoch_of(order: SampleOrder, epoch: int) -> np.ndarray:
    num_batches = order.num_batches_per_epoch
    return np.concatenate([order.rows(epoch * num_batches + index) for index in range(num_batches)])


def rows_of(runs: Runs) -> np.ndarray:
    return np.concatenate([np.arange(start, stop) for start, stop in zip(runs.starts, runs.stops, strict=True)])


def order_of(num_rows: int, seed: int = 0, row_bytes: int = SHORT_WINDOWS, global_size: int = 10_000) -> SampleOrder:
    return SampleOrder(num_rows, global_size, seed, row_bytes)


@settings(max_examples=30, deadline=None)
@given(
    num_rows=st.integers(1, 400_000),
    global_size=st.integers(1000, 200_000),
    seed=st.integers(0, 2**63 - 1),
    row_bytes=st.integers(1, 10_000),
)
def test_every_epoch_is_a_permutation_of_its_own(num_rows: int, global_size: int, seed: int, row_bytes: int) -> None:
    order = SampleOrder(num_rows, global_size, seed, row_bytes)
    first, second = epoch_of(order, 0), epoch_of(order, 1)
    for rows in (first, second):
        np.testing.assert_array_equal(np.sort(rows), np.arange(num_rows))
    if num_rows > 100:
        assert not np.array_equal(first, second)


def test_seeds_have_orders_of_their_own() -> None:
    assert not np.array_equal(order_of(1000, seed=1).rows(0), order_of(1000, seed=2).rows(0))
    assert not np.array_equal(order_of(300_000, seed=1).rows(0), order_of(300_000, seed=2).rows(0))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_a_batch_is_the_same_whichever_were_asked_for_before(data: st.DataObject) -> None:
    num_rows = data.draw(st.integers(1, 300_000))
    global_size = data.draw(st.integers(max(1, num_rows // 20), num_rows + 10))
    asked = order_of(num_rows, global_size=global_size)
    for index in data.draw(st.lists(st.integers(0, 3 * asked.num_batches_per_epoch), max_size=8)):
        fresh = order_of(num_rows, global_size=global_size)
        np.testing.assert_array_equal(asked.rows(index), fresh.rows(index))


def test_the_order_is_what_it_was_when_runs_began_that_are_to_go_on() -> None:
    rows = np.concatenate([order_of(300_000, seed=5).rows(index) for index in (0, 17, 30, 59)])
    assert hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()[:16] == "1979a025231f6e01"


@pytest.mark.parametrize("row_bytes", [1, 160, 4096, SHORT_WINDOWS])
def test_rows_within_one_window_are_shuffled_uniformly(row_bytes: int) -> None:
    """Chi-square over where rows of one part of the data land, and over which row comes first."""
    num_rows, num_parts = 20_000, 20
    order = order_of(num_rows, row_bytes=row_bytes, global_size=num_rows)
    assert order.num_windows_per_epoch == 1
    landed = np.zeros((num_parts, num_parts))
    followed = np.zeros(num_parts)
    for epoch in range(20):
        rows = order.rows(epoch)
        part_of_row, part_of_place = rows * num_parts // num_rows, np.arange(num_rows) * num_parts // num_rows
        np.add.at(landed, (part_of_row, part_of_place), 1)
        distance = (rows[1:] - rows[:-1]) % num_rows
        followed += np.bincount(distance * num_parts // num_rows, minlength=num_parts)
    degrees = (num_parts - 1) ** 2
    assert 0.001 < scipy.stats.chi2.sf(scipy.stats.chisquare(landed, axis=None).statistic, degrees) < 0.999
    assert scipy.stats.chisquare(followed).pvalue > 0.001


def test_a_block_is_equally_likely_in_every_window_and_its_rows_at_every_place_of_it() -> None:
    num_blocks = 3 * BLOCKS_PER_WINDOW
    order = order_of(num_blocks * BLOCK_ROWS, global_size=MIN_WINDOW_ROWS)
    assert order.num_windows_per_epoch == 3
    landed = np.zeros((num_blocks, 3))
    places = np.zeros(64)
    for epoch in range(60):
        for window in range(3):
            rows = order.rows(3 * epoch + window)
            blocks = np.unique(rows // BLOCK_ROWS)
            assert len(blocks) == BLOCKS_PER_WINDOW, "a block is whole in one window"
            landed[blocks, window] += 1
            of_first = np.flatnonzero(rows // BLOCK_ROWS == blocks[0])
            places += np.bincount(of_first * 64 // len(rows), minlength=64)
    assert 0.001 < scipy.stats.chi2.sf(((landed - 20) ** 2 / 20).sum(), num_blocks * 2) < 0.999
    assert scipy.stats.chisquare(places).pvalue > 0.001


def test_two_rows_of_one_block_share_a_batch_as_often_as_is_said() -> None:
    num_blocks, global_size = 8 * BLOCKS_PER_WINDOW, 16_384
    order = order_of(num_blocks * BLOCK_ROWS, global_size=global_size)
    near = far = 0
    for index in range(4 * order.num_batches_per_epoch):
        rows = order.rows(index)
        counts = np.bincount(rows // BLOCK_ROWS, minlength=num_blocks).astype(np.float64)
        near += (counts * (counts - 1)).sum()
        far += counts.sum() ** 2 - (counts**2).sum()
    num_epochs, window_rows = 4, MIN_WINDOW_ROWS
    pairs_in_block = num_epochs * num_blocks * BLOCK_ROWS * (BLOCK_ROWS - 1)
    assert near / pairs_in_block == pytest.approx(global_size / window_rows, rel=0.01)
    pairs_across = num_epochs * num_blocks * (num_blocks - 1) * BLOCK_ROWS**2
    expected = (BLOCKS_PER_WINDOW - 1) / (num_blocks - 1) * global_size / window_rows
    assert far / pairs_across == pytest.approx(expected, rel=0.01)


def test_windows_are_of_one_size_and_their_runs_are_their_rows() -> None:
    order = order_of(10 * MIN_WINDOW_ROWS + 5, global_size=MIN_WINDOW_ROWS // 2)
    assert order.num_windows_per_epoch == 11
    seen: list[int] = []
    for window in range(2 * 11):
        rows = rows_of(order.runs(window, window))
        assert abs(len(rows) - order.runs(0, 0).starts.size * BLOCK_ROWS) <= 2 * BLOCK_ROWS
        assert (np.diff(rows) > 0).all()
        seen += rows.tolist()
    assert sorted(seen) == sorted([*range(10 * MIN_WINDOW_ROWS + 5)] * 2)
    for index in range(order.num_batches_per_epoch):
        first, last = order.windows(index)
        assert np.isin(order.rows(index), rows_of(order.runs(first, last))).all()


def test_windows_hold_so_many_bytes_within_their_limits() -> None:
    num_rows = 10 * MAX_WINDOW_ROWS
    assert order_of(num_rows, row_bytes=1).num_windows_per_epoch == 10
    assert order_of(num_rows, row_bytes=160).num_windows_per_epoch == 13
    assert order_of(num_rows, row_bytes=10**6).num_windows_per_epoch == num_rows // MIN_WINDOW_ROWS
