"""Properties of every plan, and the quality of automatic plans."""

import subprocess
import sys
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharding.planner import Dense, NoPlanError, PlanRequest, Rule, Table, make_plan
from sharding.planner.check import count_bytes_by_memory_domain, find_faults
from sharding.planner.constraints import find_allowed_ranks
from sharding.planner.report import make_plan_report
from sharding.planner.types import INT8_TYPES, SHARDING_TYPES
from tests.sharding.planner.plain_plans import make_plain_plan
from tests.sharding.planner.plan_requests import draw_requests, make_request, make_tables, make_topology, set_memory

SIZES = st.lists(st.integers(1, 1_000_000), min_size=1, max_size=30)


@given(request=draw_requests())
def test_every_cell_is_on_one_rank_or_on_all_and_every_rank_has_room(request: PlanRequest):
    assert find_faults(request, make_plan(request)) == []


@settings(max_examples=20)
@given(request=draw_requests())
def test_the_same_request_gets_the_same_plan(request: PlanRequest):
    assert make_plan(request) == make_plan(request)


@given(sizes=SIZES, world_size=st.integers(1, 8), choice=st.sampled_from(["auto", "table_wise", "row_wise"]))
def test_every_byte_of_every_table_is_on_some_rank_once(sizes: list[int], world_size: int, choice: str):
    tables = make_tables(sizes)
    plan = make_plain_plan(tables, world_size, choice)
    assert [table_plan.table for table_plan in plan.tables] == list(tables)
    assert sum(plan.count_weight_bytes(rank) for rank in range(world_size)) == sum(
        table.weight_bytes for table in tables
    )


@pytest.mark.parametrize("world_size", [2, 4, 13])
def test_equal_tables_are_spread_evenly(world_size: int):
    plan = make_plain_plan(make_tables([100_000] * 26), world_size, "table_wise")
    owned = [sum(table_plan.ranks == (rank,) for table_plan in plan.tables) for rank in range(world_size)]
    assert max(owned) - min(owned) <= 1


def test_in_one_memory_equal_tables_stay_whole():
    plan = make_plain_plan(make_tables([100_000] * 26, 64), 2, "auto", optimizer="rowwise_adagrad")
    assert {table_plan.sharding_type for table_plan in plan.tables} == {"table_wise"}
    assert plan.imbalance == 1.0


def test_in_one_memory_a_single_table_is_split_by_rows():
    plan = make_plain_plan(make_tables([1_000_000], 64), 2, "auto", optimizer="rowwise_adagrad")
    assert [(table_plan.sharding_type, table_plan.ranks) for table_plan in plan.tables] == [("row_wise", (0, 1))]


def test_one_rank_splits_nothing():
    plan = make_plain_plan(make_tables([1_000_000, 10]), 1, "auto")
    assert {table_plan.sharding_type for table_plan in plan.tables} == {"table_wise"}


def test_small_tables_are_copied_where_that_saves_an_exchange():
    tables = make_tables([100, *[2_000_000] * 8], 64)
    request = make_request(tables, make_topology(2, 4), global_size=65_536)
    plan = make_plan(request)
    assert [table.sharding_type for table in plan.tables[:2]] == ["data_parallel", "table_wise"]
    one_memory = replace(request, topology=make_topology(1, 8), transport="memory")
    assert make_plan(one_memory).tables[0].sharding_type != "data_parallel"


def test_small_tables_of_int8_are_neither_copied_nor_split_by_columns():
    tables = tuple(replace(table, dtype="int8") for table in make_tables([10, 1000, 3_000_000], 64))
    for optimizer in ("sgd", "rowwise_adagrad"):
        plan = make_plain_plan(tables, 4, "auto", optimizer=optimizer, ranks_per_node=2)
        assert {table_plan.sharding_type for table_plan in plan.tables} <= set(INT8_TYPES)


def test_a_table_larger_than_a_gpu_is_split_by_rows():
    topology = make_topology(2, 4, device="cuda", memory_bytes=10**9)
    plan = make_plan(make_request(make_tables([20_000_000, 1000, 1000], 32), topology))
    assert plan.tables[0].sharding_type in ("row_wise", "table_row_wise")
    assert len(plan.tables[0].blocks) >= 3


@pytest.mark.parametrize(
    ("num_rows", "memory_bytes", "reason"),
    [
        # 1.02 GB of weights, and as much of state.
        ([4_000_000, 1000], 15 * 10**8, "too large for one GPU"),
        # 0.77 GB each, with their state, of 1.1 GB.
        ([1_500_000] * 5, 11 * 10**8, "to fit into memory with the other tables"),
        ([4_000_000], 10**12, "balances the ranks"),
    ],
)
def test_the_reason_says_why_a_table_is_in_several_shards(num_rows: list[int], memory_bytes: int, reason: str):
    topology = make_topology(1, 4, device="cuda", memory_bytes=memory_bytes)
    plan = make_plan(make_request(make_tables(num_rows, 64), topology, optimizer="adagrad"))
    reasons = {table.reason.partition(" shards: ")[2] for table in plan.tables if len(table.ranks) > 1}
    assert reason in reasons


def test_very_many_ranks_are_listed_once_for_all_tables():
    request = make_request(make_tables([10] * 3), make_topology(2, 2), plan="table_wise")
    ranks = [find_allowed_ranks(request, table, Rule("*", "auto"), "plan") for table in request.tables]
    assert ranks == [range(4)] * 3


def test_ranks_of_one_machine_share_its_memory():
    """Of two tables of 1.28 GB each, one rank may hold more than half of the machine's memory."""
    request = make_request(
        make_tables([20_000_000, 10], 16), make_topology(1, 2, memory_bytes=2 * 10**9), plan="table_wise"
    )
    assert find_faults(request, make_plan(request)) == []


@pytest.mark.parametrize(("num_rows", "expected"), [(10, [3, 3, 3, 1]), (4, [1, 1, 1, 1]), (8, [2, 2, 2, 2])])
def test_rows_are_split_into_equal_blocks(num_rows: int, expected: list[int]):
    plan = make_plain_plan([Table("t", num_rows, 4)], 4, "row_wise")
    assert [plan.count_weight_bytes(rank) // 16 for rank in range(4)] == expected


@pytest.mark.parametrize("num_rows", [1, 3, 5])
def test_a_table_with_fewer_rows_than_ranks_leaves_some_without(num_rows: int):
    (table,) = make_plain_plan([Table("t", num_rows, 4)], 8, "row_wise").tables
    assert sum(block.num_rows for block in table.blocks) == num_rows
    assert table.ranks == tuple(range(num_rows))


def test_columns_are_parted_at_multiples_of_four():
    (table,) = make_plain_plan([Table("t", 10, 20)], 4, "column_wise").tables
    assert all(block.first_column % 4 == 0 and block.num_columns % 4 == 0 for block in table.blocks)
    assert sum(block.num_columns for block in table.blocks) == 20


@pytest.mark.parametrize("kind", ["table_row_wise", "table_column_wise"])
def test_types_of_one_node_stay_on_one_node(kind: str):
    plan = make_plain_plan(make_tables([1000] * 6, 64), 4, kind, ranks_per_node=2)
    assert {tuple(rank // 2 for rank in table.ranks) for table in plan.tables} == {(0, 0), (1, 1)}


def test_a_grid_has_columns_over_nodes_and_rows_within_them():
    (table,) = make_plain_plan([Table("t", 10, 8)], 4, "grid", ranks_per_node=2).tables
    assert [(block.rank, block.first_row, block.first_column) for block in table.blocks] == [
        (0, 0, 0),
        (1, 5, 0),
        (2, 0, 4),
        (3, 5, 4),
    ]


def test_the_first_rule_that_matches_a_table_claims_it():
    rules = (Rule("t1", "data_parallel"), Rule("t*", "row_wise", (0, 2)))
    plan = make_plan(make_request(make_tables([50, 60, 70]), make_topology(2, 2), rules=rules, plan="table_wise"))
    assert [(table.sharding_type, table.ranks) for table in plan.tables] == [
        ("row_wise", (0, 2)),
        ("data_parallel", (0, 1, 2, 3)),
        ("row_wise", (0, 2)),
    ]


@pytest.mark.parametrize("kind", ["auto", "table_wise"])
def test_a_rule_may_leave_the_type_open_and_name_ranks(kind: Literal["auto", "table_wise"]):
    plan = make_plan(make_request(make_tables([500] * 6), make_topology(2, 2), rules=(Rule("*", kind, (1, 3)),)))
    assert {rank for table in plan.tables for rank in table.ranks} == {1, 3}


def test_no_tables_are_spread_perfectly():
    plan = make_plain_plan([], 3, "auto")
    assert plan.tables == ()
    assert [plan.count_weight_bytes(rank) for rank in range(3)] == [0, 0, 0]
    assert plan.imbalance == 1.0


@pytest.mark.parametrize("kind", SHARDING_TYPES)
def test_the_figures_of_ranks_in_a_report_are_the_sums_over_blocks(kind: str):
    request = make_request(
        make_tables([1000, 50_000, 7]), make_topology(2, 2, device="cuda"), plan=kind, optimizer="adagrad"
    )
    plan = make_plan(request)
    answer = make_plan_report(request, plan)
    counted = count_bytes_by_memory_domain(request, plan)
    assert [rank.total_bytes for rank in answer.ranks] == pytest.approx(counted, abs=20)
    assert [rank.weight_bytes for rank in answer.ranks] == [plan.count_weight_bytes(rank) for rank in range(4)]
    for table in answer.tables:
        assert sum(table.optimizer_bytes) == sum(table.weight_bytes)
    assert answer.largest_bytes == max(rank.total_bytes for rank in answer.ranks)
    assert answer.step.seconds == pytest.approx(sum(answer.step.terms.values())) == sum(answer.step.parts.values())


def test_sums_of_copies_count_to_the_update_and_dense_ones_to_the_wait():
    request = make_request(make_tables([1000, 50_000]), make_topology(2, 2), plan="data_parallel")
    step = make_plan_report(request, make_plan(request)).step
    assert step.terms["copies_sum"] > step.terms["all_reduce"] > 0.0
    assert step.parts["table_update"] == step.terms["update"] + step.terms["copies_sum"]
    assert step.parts["wait_for_sum"] == step.terms["all_reduce"]
    whole = replace(request, plan="table_wise")
    assert make_plan_report(whole, make_plan(whole)).step.terms["copies_sum"] == 0.0


def test_in_one_memory_nothing_travels():
    request = make_request(make_tables([1000, 50_000]), make_topology(1, 2), transport="memory")
    answer = make_plan_report(request, make_plan(request))
    assert set(vars(answer.exchange_bytes).values()) == {0.0}
    assert answer.step.terms["forward"] == answer.step.terms["ids"] == 0.0


@pytest.mark.parametrize(("ranks", "num_passes"), [(1, 0), (2, 4)])
def test_in_one_memory_dense_sums_are_passes_over_it_and_alone_nothing(ranks: int, num_passes: int):
    request = make_request(
        make_tables([1000]), make_topology(1, ranks), transport="memory", dense=Dense(sum_bytes=10**6)
    )
    summed = make_plan_report(request, make_plan(request)).step.terms["all_reduce"]
    assert summed == pytest.approx(num_passes * 10**6 / request.topology.memory_bandwidth)


def test_half_the_number_format_is_half_the_traffic():
    request = make_request(make_tables([1000, 50_000]), make_topology(1, 2), plan="table_wise")
    wide, narrow = (
        make_plan_report(of, make_plan(of)).exchange_bytes for of in (request, replace(request, exchange_dtype="fp16"))
    )
    assert (narrow.forward, narrow.backward, narrow.ids) == (wide.forward / 2, wide.backward / 2, wide.ids)
    assert wide.forward == 2 * 16 * 4 * 4096 / 2


def test_plans_need_neither_torch_nor_numpy():
    found = subprocess.run(
        [sys.executable, "-c", "import sharding.planner.__main__, sys; print({'torch', 'numpy'} & set(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize("exchange_dtype", ["fp32", "fp16", "bf16"])
def test_the_largest_batch_is_planned_over_the_network_where_it_fits(exchange_dtype: str):
    """Its slices are small, whatever tables might have copies: a rank takes 2 to 4 GB."""
    topology = make_topology(1, 2, memory_bytes=8 * 2**30)
    request = make_request(
        make_tables([100_000] * 26, 64), topology, global_size=524_288, chunk_size=4096, exchange_dtype=exchange_dtype
    )
    plan = make_plan(request)
    assert find_faults(request, plan) == []


def test_copies_that_make_slices_larger_leave_room_for_them():
    """All tables may have copies; where all but one have, its slices hold the whole share."""
    request = make_request(make_tables([200] * 30 + [3_000_000], 64), make_topology(2, 1), global_size=2**19)
    needed = max(count_bytes_by_memory_domain(request, make_plan(request)))
    for share in (1.0, 0.97, 0.9, 0.8, 0.6):
        tight = set_memory(request, int(share * needed))
        try:
            plan = make_plan(tight)
        except NoPlanError:
            continue
        assert find_faults(tight, plan) == []
