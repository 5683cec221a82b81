import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.plan import Table, make_plan

SIZES = st.lists(st.integers(1, 1_000_000), min_size=1, max_size=30)


def tables_of(sizes: list[int]) -> list[Table]:
    return [Table(f"t{number}", rows, 16) for number, rows in enumerate(sizes)]


@given(sizes=SIZES, world_size=st.integers(1, 8), choice=st.sampled_from(["auto", "table_wise", "row_wise"]))
def test_every_byte_of_every_table_is_on_some_rank_once(sizes: list[int], world_size: int, choice: str):
    tables = tables_of(sizes)
    plan = make_plan(tables, world_size, choice)  # pyright: ignore[reportArgumentType]
    assert [table_plan.table for table_plan in plan.tables] == tables
    assert sum(plan.weight_bytes(rank) for rank in range(world_size)) == sum(table.weight_bytes for table in tables)


@given(sizes=SIZES, world_size=st.integers(1, 8))
def test_whole_tables_are_dealt_out_evenly_by_number(sizes: list[int], world_size: int):
    plan = make_plan(tables_of(sizes), world_size, "table_wise")
    owned = [sum(table_plan.ranks == (rank,) for table_plan in plan.tables) for rank in range(world_size)]
    assert max(owned) - min(owned) <= 1


def test_a_table_larger_than_a_fair_share_is_split_by_rows():
    plan = make_plan(tables_of([1_000_000, 10, 10, 10]), 2, "auto")
    assert [table_plan.sharding_type for table_plan in plan.tables] == ["row_wise"] + ["table_wise"] * 3
    assert plan.imbalance < 1.01


def test_one_rank_splits_nothing():
    plan = make_plan(tables_of([1_000_000, 10]), 1, "auto")
    assert {table_plan.sharding_type for table_plan in plan.tables} == {"table_wise"}


@pytest.mark.parametrize(("num_rows", "expected"), [(10, [3, 3, 3, 1]), (4, [1, 1, 1, 1]), (8, [2, 2, 2, 2])])
def test_rows_are_dealt_out_in_equal_blocks(num_rows: int, expected: list[int]):
    plan = make_plan([Table("t", num_rows, 4)], 4, "row_wise")
    assert [plan.weight_bytes(rank) // 16 for rank in range(4)] == expected


@pytest.mark.parametrize("num_rows", [1, 3, 5, 9])
def test_a_table_that_would_leave_a_rank_without_rows_goes_whole(num_rows: int):
    plan = make_plan(tables_of([num_rows, 400]), 4, "row_wise")
    assert [table_plan.sharding_type for table_plan in plan.tables] == ["table_wise", "row_wise"]


def test_no_tables_are_spread_perfectly():
    plan = make_plan([], 3, "auto")
    assert plan.tables == ()
    assert [plan.weight_bytes(rank) for rank in range(3)] == [0, 0, 0]
    assert plan.imbalance == 1.0
