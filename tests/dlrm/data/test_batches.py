import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlrm.data.batches import Batch, TrainBatches, read_evaluation_batches
from dlrm.data.order import SampleOrder
from dlrm.data.rows import DataSchema, Feature, Rows, Runs, make_single_id_bags
from dlrm.data.threads import prefetch


class NumberedRows:
    """A source whose rows say their own numbers, counted from 1."""

    schema = DataSchema(2, (Feature("C1", 10**6), Feature("C2", 10**6)))
    row_bytes = 1 << 20
    """So many that a window is as short as it gets."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        numbers = row_numbers + 1
        dense = np.stack([numbers, -numbers], axis=1).astype(np.float32)
        weights = numbers.astype(np.float32)
        return Rows(
            np.ones(len(numbers), dtype=np.float32),
            dense,
            make_single_id_bags(np.stack([numbers, 2 * numbers])),
            weights,
        )

    def read_weights(self, row_numbers: NDArray[np.int64]) -> None:  # noqa: ARG002
        return None

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """Nothing."""

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> None:  # noqa: ARG002
        return None


class FailingRows(NumberedRows):
    def read(self, row_numbers: NDArray[np.int64]) -> Rows:  # noqa: ARG002
        raise OSError("the disk is gone")


def train_batches(num_rows: int, global_size: int, rank: int = 0, world_size: int = 1, **more: Any) -> list[Batch]:
    options = {"seed": 3, "num_epochs": 2, **more}
    with TrainBatches(NumberedRows(num_rows), global_size, rank, world_size, **options) as batches:
        return list(batches)


def global_ids(per_rank: list[list[Batch]]) -> list[list[int]]:
    """Row numbers of every global batch, in order, empty rows left out: ranks have one in turn."""
    batches: list[list[int]] = []
    for shares in zip(*per_rank, strict=True):
        of_ranks = [[int(n) for n in batch.dense[batch.mask == 1, 0]] for batch in shares]
        in_turn = [number for turn in itertools.zip_longest(*of_ranks) for number in turn]
        batches.append([number for number in in_turn if number is not None])
    return batches


@given(st.integers(1, 300), st.integers(1, 8), st.integers(0, 2**63 - 1))
def test_any_number_of_ranks_delivers_the_same_global_batches(num_rows: int, units: int, seed: int) -> None:
    global_size = 12 * units
    alone = global_ids([train_batches(num_rows, global_size, seed=seed)])
    for world_size in (2, 3, 4):
        ranks = [train_batches(num_rows, global_size, rank, world_size, seed=seed) for rank in range(world_size)]
        assert global_ids(ranks) == alone
    assert all(len(batch) == min(global_size, num_rows) for batch in alone[:-1])
    in_order = [n for batch in alone for n in batch]
    for epoch in (in_order[:num_rows], in_order[num_rows:]):
        assert sorted(epoch) == list(range(1, num_rows + 1))


def test_an_epoch_shorter_than_a_batch_is_a_batch_each() -> None:
    batches = train_batches(7, 12, num_epochs=3)
    assert [batch.num_valid for batch in batches] == [7, 7, 7]
    for (numbers,) in (global_ids([[batch]]) for batch in batches):
        assert sorted(numbers) == list(range(1, 8))


@pytest.mark.parametrize(("num_rows", "lengths"), [(95, [10] * 19), (96, [10] * 19 + [2]), (91, [10] * 18 + [2])])
def test_only_the_last_batch_of_a_run_is_short(num_rows: int, lengths: list[int]) -> None:
    with TrainBatches(NumberedRows(num_rows), 10, 0, 1, seed=0, num_epochs=2) as batches:
        assert [batch.num_valid for batch in batches] == lengths
        assert batches.num_batches == len(lengths)


def test_a_run_whose_epochs_ended_with_short_batches_resumes_at_its_row() -> None:
    whole = train_batches(25, 10, num_epochs=3)
    # Three batches of the first epoch, the last of 5 rows, and one of the second.
    rest = train_batches(25, 10, num_epochs=3, start_batch=4, start_row=35)
    assert [batch.index for batch in rest] == [4, 5, 6, 7]
    in_order, of_rest = ([n for batch in global_ids([batches]) for n in batch] for batches in (whole, rest))
    assert of_rest == in_order[35:]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_share_holds_its_groups_one_after_another(world_size: int) -> None:
    num_groups, size = 6, 20
    batch = global_ids([train_batches(size, 24, num_epochs=1)])[0]
    for rank in range(world_size):
        (share,) = train_batches(size, 24, rank, world_size, num_epochs=1, num_groups=num_groups)
        expected = [batch[i] for group in range(rank, 6, world_size) for i in range(size) if i % num_groups == group]
        assert share.dense[share.mask == 1, 0].tolist() == expected
        assert share.mask.tolist() == sorted(share.mask, reverse=True)


def test_a_short_last_batch_is_padded_with_masked_rows() -> None:
    full, last = train_batches(10, 8, rank=0, world_size=2, num_epochs=1)
    _, last_of_rank_1 = train_batches(10, 8, rank=1, world_size=2, num_epochs=1)
    assert full.num_valid == 8
    assert full.mask.tolist() == [1, 1, 1, 1]
    assert last.num_valid == last_of_rank_1.num_valid == 2
    assert last.mask.tolist() == [1, 0, 0, 0]
    assert last_of_rank_1.mask.tolist() == [1, 0, 0, 0]
    for batch in (last, last_of_rank_1):
        assert batch.dense.shape == (4, 2)
        assert batch.ids.lengths.shape == (2, 4)
        assert batch.ids.lengths.sum() == len(batch.ids.values)
        assert batch.weights is not None
        empty = batch.mask == 0
        assert not batch.dense[empty].any()
        assert not batch.ids.lengths[:, empty].any()
        assert not batch.labels[empty].any()
        assert not batch.weights[empty].any()
        np.testing.assert_array_equal(batch.weights[~empty], batch.dense[~empty, 0])


@given(st.integers(0, 8))
def test_a_run_resumes_where_it_stopped(start_batch: int) -> None:
    whole = train_batches(30, 8)
    rest = train_batches(30, 8, start_batch=start_batch, start_row=min(8 * start_batch, 60))
    assert [batch.index for batch in rest] == list(range(start_batch, 8))
    assert global_ids([rest]) == global_ids([whole])[start_batch:]


def test_the_number_of_batches_is_that_of_the_whole_run_wherever_it_resumes() -> None:
    for start in (0, 12):
        rows = NumberedRows(95)
        options: dict[str, Any] = {"seed": 0, "num_epochs": 2, "start_batch": start, "start_row": 10 * start}
        with TrainBatches(rows, 10, 0, 1, **options) as batches:
            assert batches.num_batches == 19
            assert len(list(batches)) == 19 - start


@pytest.mark.parametrize("world_size", [1, 2])
def test_stages_of_several_sizes_have_the_rows_of_the_global_order_once_each(world_size: int) -> None:
    """Two epochs of 95 rows: ten batches of 4, then of 12 from row 40 to 100, then of 32 to the end of the run."""
    stages = [(4, 0, 0, 40), (12, 10, 40, 100), (32, 15, 100, 190)]
    per_rank: list[list[Batch]] = []
    for rank in range(world_size):
        per_rank.append([])
        for size, step, start, end in stages:
            positions = {"start_batch": step, "start_row": start, "end_row": end}
            per_rank[rank] += train_batches(95, size, rank, world_size, **positions)
    first, second = global_ids([train_batches(95, 95)])
    borders = [*range(0, 40, 4), *range(40, 100, 12), 100, 132, 164, 190]
    expected = [[*first, *second][start:end] for start, end in itertools.pairwise(borders)]
    assert global_ids(per_rank) == expected
    assert [batch.index for batch in per_rank[0]] == list(range(18))
    assert [batch.num_valid for batch in per_rank[0]] == [len(batch) for batch in expected]


@pytest.mark.parametrize(
    "world_size", [pytest.param(1, marks=pytest.mark.slow), 2, 3, pytest.param(4, marks=pytest.mark.slow)]
)
def test_ranks_deliver_the_same_global_batches_over_many_windows_and_go_on_at_any(world_size: int) -> None:
    num_rows, global_size = 300_000, 12 * 5000
    order = SampleOrder(num_rows, 3, NumberedRows.row_bytes)
    assert order.num_windows_per_epoch == 5
    for start_batch in range(10):
        start = start_batch * global_size
        options = {"start_batch": start_batch, "start_row": start, "num_epochs": start_batch // 5 + 1}
        ranks = [train_batches(num_rows, global_size, rank, world_size, **options) for rank in range(world_size)]
        delivered = global_ids(ranks)
        expected = order.find_rows(start, start + global_size)
        assert delivered[0] == (expected.row_numbers + 1).tolist()
        assert {shares[0].halves for shares in ranks} == {expected.halves}
        assert len(delivered) == 5 - start_batch % 5


def test_an_error_of_the_thread_is_raised_where_its_batch_is_asked_for() -> None:
    with (
        TrainBatches(FailingRows(100), 10, 0, 1, seed=0, num_epochs=1) as batches,
        pytest.raises(OSError, match="the disk is gone"),
    ):
        next(batches)


@pytest.mark.parametrize(("is_order_ahead", "num_threads"), [(False, 1), (True, 2)])
def test_leaving_early_ends_the_threads(is_order_ahead: bool, num_threads: int) -> None:
    before = threading.active_count()
    rows = NumberedRows(10_000)
    with TrainBatches(rows, 10, 0, 1, seed=0, num_epochs=1, is_order_ahead=is_order_ahead) as batches:
        next(batches)
        assert threading.active_count() == before + num_threads
    assert threading.active_count() == before


def test_orders_that_are_found_ahead_give_the_same_batches() -> None:
    """Of several windows, from the middle of a run on."""
    options = {"world_size": 2, "start_batch": 3, "start_row": 3 * 700}
    found, expected = (train_batches(3000, 700, 1, is_order_ahead=ahead, **options) for ahead in (True, False))
    assert len(found) == len(expected) > 2
    for one, other in zip(found, expected, strict=True):
        assert (one.index, one.num_valid, one.halves) == (other.index, other.num_valid, other.halves)
        assert np.array_equal(one.ids.values, other.ids.values)


def test_no_more_is_made_ahead_than_asked_for() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    results = prefetch(lambda number: number * 2, numbers(), num_ahead=2)
    assert [next(results) for _ in range(3)] == [0, 2, 4]
    assert len(made) == 5
    results.close()


def test_sizes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="10 is not divisible by 3"):
        TrainBatches(NumberedRows(100), 10, 0, 3, seed=0, num_epochs=1)


@given(st.integers(1, 100), st.integers(1, 9), st.integers(1, 4))
def test_every_rank_evaluates_as_many_batches_and_together_every_row_once(
    num_rows: int, batch_size: int, world_size: int
) -> None:
    source = NumberedRows(num_rows)
    ranks = [list(read_evaluation_batches(source, batch_size, rank, world_size)) for rank in range(world_size)]
    assert len({len(batches) for batches in ranks}) == 1
    of_batches = [[batch.dense[batch.mask == 1, 0] for batch in shares] for shares in zip(*ranks, strict=True)]
    assert [int(n) for shares in of_batches for share in shares for n in share] == list(range(1, num_rows + 1))
    for shares in zip(*ranks, strict=True):
        assert {batch.num_valid for batch in shares} == {int(sum(batch.mask.sum() for batch in shares))}
