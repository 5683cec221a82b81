import hashlib

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dlrm.data.order import BLOCKS_PER_WINDOW, MAX_WINDOW_ROWS, MIN_WINDOW_ROWS, SampleOrder
from dlrm.data.rows import Runs

SHORT_WINDOWS = 1 << 20
"""Bytes of a row with which a window has MIN_WINDOW_ROWS."""
BLOCK_ROWS = MIN_WINDOW_ROWS // BLOCKS_PER_WINDOW
"""Then."""


def batch_of(order: SampleOrder, index: int, size: int) -> np.ndarray:
    return order.find_rows(index * size, (index + 1) * size).row_numbers


def rows_of(runs: Runs) -> np.ndarray:
    return np.concatenate([np.arange(start, stop) for start, stop in zip(runs.starts, runs.ends, strict=True)])


def order_of(num_rows: int, seed: int = 0, row_bytes: int = SHORT_WINDOWS) -> SampleOrder:
    return SampleOrder(num_rows, seed, row_bytes)


@given(
    num_rows=st.integers(1, 400_000),
    size=st.integers(1000, 200_000),
    seed=st.integers(0, 2**63 - 1),
    row_bytes=st.integers(1, 10_000),
)
def test_every_epoch_is_a_permutation_of_its_own_however_it_is_cut(
    num_rows: int, size: int, seed: int, row_bytes: int
) -> None:
    order = SampleOrder(num_rows, seed, row_bytes)
    epochs: list[np.ndarray] = []
    for epoch in range(2):
        starts = range(epoch * num_rows, (epoch + 1) * num_rows, size)
        pieces = [order.find_rows(start, min(start + size, (epoch + 1) * num_rows)).row_numbers for start in starts]
        epochs.append(np.concatenate(pieces))
        np.testing.assert_array_equal(np.sort(epochs[-1]), np.arange(num_rows))
    if num_rows > 100:
        assert not np.array_equal(*epochs)


def test_a_batch_over_the_end_of_an_epoch_has_rows_of_both() -> None:
    order = order_of(25_000)
    over_the_end = batch_of(order, 2, 10_000)
    rest, beginning = order.find_rows(20_000, 25_000).row_numbers, order.find_rows(25_000, 30_000).row_numbers
    np.testing.assert_array_equal(over_the_end, np.concatenate([rest, beginning]))
    assert sorted([*order.find_rows(0, 20_000).row_numbers, *rest]) == list(range(25_000))


def test_seeds_have_orders_of_their_own() -> None:
    assert not np.array_equal(batch_of(order_of(1000, seed=1), 0, 1000), batch_of(order_of(1000, seed=2), 0, 1000))
    first, second = (batch_of(order_of(300_000, seed=seed), 0, 10_000) for seed in (1, 2))
    assert not np.array_equal(first, second)


@given(st.data())
def test_a_batch_is_the_same_whichever_were_asked_for_before(data: st.DataObject) -> None:
    num_rows = data.draw(st.integers(1, 300_000))
    size = data.draw(st.integers(max(1, num_rows // 20), num_rows + 10))
    asked = order_of(num_rows)
    for index in data.draw(st.lists(st.integers(0, 60), max_size=8)):
        fresh = order_of(num_rows)
        np.testing.assert_array_equal(batch_of(asked, index, size), batch_of(fresh, index, size))


def test_the_row_at_a_position_never_changes_so_that_old_runs_can_resume() -> None:
    order = order_of(50_000, seed=5, row_bytes=1)
    rows = np.concatenate([batch_of(order, index, 10_000) for index in (0, 3, 7)])
    assert hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()[:16] == "bf48f481200997cd"
    order = order_of(300_000, seed=5)
    rows = np.concatenate([np.sort(batch_of(order, index, 10_000)) for index in (0, 17, 30, 59)])
    assert hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()[:16] == "d83590bac39db206"


@pytest.mark.parametrize("row_bytes", [1, 160, 4096, SHORT_WINDOWS])
def test_rows_within_one_window_are_shuffled_uniformly(row_bytes: int) -> None:
    """Chi-square over where rows of one part of the data land, and over which row comes first."""
    num_rows, num_parts = 20_000, 20
    order = order_of(num_rows, row_bytes=row_bytes)
    assert order.num_windows_per_epoch == 1
    landed = np.zeros((num_parts, num_parts))
    followed = np.zeros(num_parts)
    for epoch in range(20):
        rows = batch_of(order, epoch, num_rows)
        part_of_row, part_of_place = rows * num_parts // num_rows, np.arange(num_rows) * num_parts // num_rows
        np.add.at(landed, (part_of_row, part_of_place), 1)
        distance = (rows[1:] - rows[:-1]) % num_rows
        followed += np.bincount(distance * num_parts // num_rows, minlength=num_parts)
    degrees = (num_parts - 1) ** 2
    assert 0.001 < scipy.stats.chi2.sf(scipy.stats.chisquare(landed, axis=None).statistic, degrees) < 0.999
    assert scipy.stats.chisquare(followed).pvalue > 0.001


def test_a_block_is_equally_likely_in_every_window_and_its_rows_at_every_position() -> None:
    num_blocks = 3 * BLOCKS_PER_WINDOW
    order = order_of(num_blocks * BLOCK_ROWS)
    assert order.num_windows_per_epoch == 3
    landed = np.zeros((num_blocks, 3))
    places = np.zeros(64)
    for epoch in range(60):
        for window in range(3):
            pieces = np.split(np.arange(MIN_WINDOW_ROWS) + (3 * epoch + window) * MIN_WINDOW_ROWS, 64)
            in_order = [
                order.find_rows(int(piece[0]), int(piece[-1]) + 1).row_numbers // BLOCK_ROWS for piece in pieces
            ]
            blocks = np.unique(np.concatenate(in_order))
            assert len(blocks) == BLOCKS_PER_WINDOW, "a block is whole in one window"
            landed[blocks, window] += 1
            places += [int((part == blocks[0]).sum()) for part in in_order]
    assert 0.001 < scipy.stats.chi2.sf(((landed - 20) ** 2 / 20).sum(), num_blocks * 2) < 0.999
    assert scipy.stats.chisquare(places).pvalue > 0.001


def test_two_rows_of_one_block_share_a_batch_as_often_as_documented() -> None:
    num_blocks, global_size = 8 * BLOCKS_PER_WINDOW, 16_384
    order = order_of(num_blocks * BLOCK_ROWS)
    near = far = 0
    for index in range(4 * num_blocks * BLOCK_ROWS // global_size):
        rows = batch_of(order, index, global_size)
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
    order = order_of(10 * MIN_WINDOW_ROWS + 5)
    assert order.num_windows_per_epoch == 11
    seen: list[int] = []
    for window in range(2 * 11):
        rows = rows_of(order.get_runs(window, window))
        assert abs(len(rows) - order.get_runs(0, 0).starts.size * BLOCK_ROWS) <= 2 * BLOCK_ROWS
        assert (np.diff(rows) > 0).all()
        seen += rows.tolist()
    assert sorted(seen) == sorted([*range(10 * MIN_WINDOW_ROWS + 5)] * 2)
    size = MIN_WINDOW_ROWS // 2
    for start in range(0, 15 * MIN_WINDOW_ROWS, size):
        first, last = order.find_windows(start, start + size)
        rows = order.find_rows(start, start + size).row_numbers
        assert np.isin(rows, rows_of(order.get_runs(first, last))).all()
        if first == last - 1:
            one_less = rows_of(order.get_runs(first, first)), rows_of(order.get_runs(last, last))
            assert not any(np.isin(rows, rows_of_one).all() for rows_of_one in one_less)


def test_two_parts_of_a_batch_have_no_block_in_common_where_there_are_several_windows() -> None:
    order = order_of(4 * MIN_WINDOW_ROWS)
    for start in range(0, 3 * MIN_WINDOW_ROWS, 10_000):
        taken = order.find_rows(start, start + 10_000)
        assert taken.halves is not None
        num_first = taken.halves.num_first
        # Each row is of the first half with probability 1/2: 400 are 8 standard deviations.
        assert abs(num_first - 5000) < 400
        first, rest = np.split(taken.row_numbers // BLOCK_ROWS, [num_first])
        assert not np.isin(first, rest).any()
        if order.find_windows(start, start + 10_000)[0] == order.find_windows(start, start + 10_000)[1]:
            assert taken.halves.coverage == pytest.approx(1 / 4)


def test_a_batch_says_which_share_of_the_blocks_it_draws_on() -> None:
    assert order_of(MIN_WINDOW_ROWS).find_rows(0, 1000).halves is None
    order = order_of(8 * MIN_WINDOW_ROWS)
    coverages = [
        taken.halves.coverage if taken.halves else 1.0
        for taken in (order.find_rows(0, windows * MIN_WINDOW_ROWS) for windows in (1, 2, 4, 8))
    ]
    assert coverages == pytest.approx([1 / 8, 1 / 4, 1 / 2, 1])
    # Three quarters of one window and a quarter of another are as many as 1 / (9/16 + 1/16) windows.
    uneven = order.find_rows(MIN_WINDOW_ROWS // 4, 5 * MIN_WINDOW_ROWS // 4)
    assert uneven.halves is not None
    assert uneven.halves.coverage == pytest.approx(1.6 / 8)
    # Over the end of an epoch, half of it before: (1/4 + 1/4) / (8 (1/4 + 1/4)), since blocks are drawn anew.
    over_the_end = order.find_rows(15 * MIN_WINDOW_ROWS // 2, 17 * MIN_WINDOW_ROWS // 2)
    assert over_the_end.halves is not None
    assert over_the_end.halves.coverage == pytest.approx(1 / 8)


def test_windows_hold_so_many_bytes_within_their_limits() -> None:
    num_rows = 10 * MAX_WINDOW_ROWS
    assert order_of(num_rows, row_bytes=1).num_windows_per_epoch == 10
    assert order_of(num_rows, row_bytes=160).num_windows_per_epoch == 13
    assert order_of(num_rows, row_bytes=10**6).num_windows_per_epoch == num_rows // MIN_WINDOW_ROWS
