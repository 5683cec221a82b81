"""The check finds the faults of a plan."""

from dataclasses import replace

import pytest

from sharding.planner import Block, Plan, PlanError, PlanRequest, TablePlan, make_plan
from sharding.planner.check import count_bytes_by_memory_domain, find_faults
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.types import TableDtype
from tests.sharding.planner.plan_requests import make_request, make_tables, make_topology

REQUEST = make_request(make_tables([100, 40], 8), make_topology(2, 2, device="cuda"), optimizer="sgd", plan="row_wise")


def make_plan_of_blocks(*blocks: Block, kind: str = "row_wise") -> Plan:
    """A sound plan but for its first table."""
    plan = make_plan(REQUEST)
    changed = TablePlan(plan.tables[0].table, kind, blocks)  # pyright: ignore[reportArgumentType]
    return replace(plan, tables=(changed, *plan.tables[1:]))


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (make_plan_of_blocks(Block(0, 0, 99, 0, 8)), "792 cells"),
        (make_plan_of_blocks(Block(0, 0, 50, 0, 8), Block(1, 49, 50, 0, 8)), "share cells"),
        (make_plan_of_blocks(Block(0, 0, 50, 0, 8), Block(1, 51, 50, 0, 8)), "not within the table"),
        (make_plan_of_blocks(Block(0, 0, 100, 0, 4), Block(1, 0, 100, 3, 4)), "share cells"),
        (make_plan_of_blocks(Block(0, 0, 50, 0, 8), Block(1, 0, 100, 2, 4)), "share cells"),
        (make_plan_of_blocks(Block(4, 0, 100, 0, 8)), "there is no rank 4"),
        (make_plan_of_blocks(Block(0, 0, 100, 0, 8), kind="data_parallel"), "one whole copy on every rank"),
        (Plan(4, ()), "other tables"),
    ],
)
def test_a_plan_that_is_not_sound_has_faults(plan: Plan, fault: str):
    assert any(fault in found for found in find_faults(REQUEST, plan))


def test_blocks_of_other_columns_in_other_rows_share_nothing():
    """A pinwheel: no cut goes from one side of the table to the other."""
    blocks = [(0, 40, 0, 6), (0, 70, 6, 2), (70, 30, 2, 6), (40, 60, 0, 2), (40, 30, 2, 4)]
    assert find_faults(REQUEST, make_plan_of_blocks(*(Block(0, *of) for of in blocks), kind="table_wise")) == []


def test_a_table_in_very_many_blocks_is_checked():
    request = make_request(make_tables([2**20] * 20, 8), make_topology(128, 8), plan="row_wise", global_size=2**13)
    assert find_faults(request, make_plan(request)) == []


@pytest.mark.parametrize(
    ("optimizer", "dtype", "of_row"),
    [
        ("sgd", "fp32", 32),
        ("rowwise_adagrad", "fp32", 36),
        ("adagrad", "fp32", 64),
        ("sgd", "int8", 16),
        ("rowwise_adagrad", "int8", 20),
        ("adagrad", "int8", 48),
    ],
)
def test_weights_and_state_are_counted_whatever_the_placement_went_by(
    optimizer: str, dtype: TableDtype, of_row: int, monkeypatch: pytest.MonkeyPatch
):
    tables = tuple(replace(table, dtype=dtype) for table in make_tables([1000], 8))
    request = make_request(tables, make_topology(1, 1), optimizer=optimizer, plan="table_wise")
    plan = make_plan(request)
    (counted,) = count_bytes_by_memory_domain(request, plan)
    monkeypatch.setattr(MemoryEstimator, "estimate_shard_buffer_bytes", lambda *_: 0)
    monkeypatch.setattr(MemoryEstimator, "estimate_shard_bytes", lambda *_: 0)
    (without,) = count_bytes_by_memory_domain(request, plan)
    more_rows = replace(plan.tables[0], blocks=(Block(0, 0, 1001, 0, 8),))
    (one_more,) = count_bytes_by_memory_domain(request, replace(plan, tables=(more_rows,)))
    assert one_more - without == of_row
    assert counted > without >= 1000 * of_row


def test_a_rank_without_room_is_a_fault():
    plan = make_plan(REQUEST)
    small = replace(REQUEST, topology=replace(REQUEST.topology, memory_bytes=100_000))
    assert any(found.startswith("rank 0 needs") for found in find_faults(small, plan))


@pytest.mark.parametrize("kind", ["column_wise", "data_parallel"])
def test_split_or_copied_rows_of_int8_are_a_fault_and_refused(kind: str):
    request = replace(REQUEST, plan=kind, topology=make_topology(2, 2))
    tables = tuple(replace(table, dtype="int8") for table in request.tables)
    plan = make_plan(request)
    int8 = tuple(replace(planned, table=table) for planned, table in zip(plan.tables, tables, strict=True))
    faults = find_faults(replace(request, tables=tables), replace(plan, tables=int8))
    assert any(f"{kind} does not work with int8" in fault for fault in faults)
    with pytest.raises(PlanError, match="whose rows are int8 with one scale each") as refused:
        make_plan(replace(request, tables=tables))
    assert refused.value.field == "plan"


def test_split_rows_under_an_optimizer_of_whole_rows_are_a_fault():
    request: PlanRequest = replace(REQUEST, plan="column_wise")
    plan = make_plan(request)
    assert find_faults(request, plan) == []
    faults = find_faults(replace(request, optimizer="rowwise_adagrad"), plan)
    assert any("does not work with" in fault for fault in faults)
