"""The check finds what is wrong with a plan."""

from dataclasses import replace

import pytest

from sharding.plan import Block, Plan, PlanRequest, TablePlan, plan_of
from sharding.plan.check import faults_of
from tests.sharding.plan.made_requests import request_of, tables_of, topology_of

REQUEST = request_of(tables_of([100, 40], 8), topology_of(2, 2, device="cuda"), optimizer="sgd", plan="row_wise")


def with_blocks(*blocks: Block, kind: str = "row_wise") -> Plan:
    """A sound plan but for its first table."""
    plan = plan_of(REQUEST)
    changed = TablePlan(plan.tables[0].table, kind, blocks)  # pyright: ignore[reportArgumentType]
    return replace(plan, tables=(changed, *plan.tables[1:]))


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (with_blocks(Block(0, 0, 99, 0, 8)), "792 cells"),
        (with_blocks(Block(0, 0, 50, 0, 8), Block(1, 49, 50, 0, 8)), "share cells"),
        (with_blocks(Block(0, 0, 50, 0, 8), Block(1, 51, 50, 0, 8)), "not within the table"),
        (with_blocks(Block(0, 0, 100, 0, 4), Block(1, 0, 100, 3, 4)), "share cells"),
        (with_blocks(Block(4, 0, 100, 0, 8)), "there is no rank 4"),
        (with_blocks(Block(0, 0, 100, 0, 8), kind="data_parallel"), "not one whole copy on every rank"),
        (Plan(4, ()), "other tables"),
    ],
)
def test_a_plan_that_is_not_sound_is_told(plan: Plan, fault: str):
    assert any(fault in found for found in faults_of(REQUEST, plan))


def test_a_rank_without_room_is_told():
    plan = plan_of(REQUEST)
    small = replace(REQUEST, topology=replace(REQUEST.topology, memory_bytes=100_000))
    assert any(found.startswith("rank 0 needs") for found in faults_of(small, plan))


def test_split_rows_under_an_optimizer_of_whole_rows_are_told():
    request: PlanRequest = replace(REQUEST, plan="column_wise")
    plan = plan_of(request)
    assert faults_of(request, plan) == []
    assert any("goes not with" in found for found in faults_of(replace(request, optimizer="rowwise_adagrad"), plan))
