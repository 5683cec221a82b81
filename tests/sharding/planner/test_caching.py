"""Tables that stay in the memory of the host, where GPUs have no room for all."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.planner import NoPlanError, Plan, PlanError, PlanRequest, Rule, Table, make_plan
from sharding.planner.check import count_bytes_by_memory_domain, find_faults
from sharding.planner.report import make_plan_report
from tests.sharding.planner.plan_requests import make_request, make_tables, make_topology, set_memory

MEGABYTE = 10**6


def make_gpu_request(
    tables: tuple[Table, ...], *, gpu_bytes: int, host_bytes: int = 10**12, num_gpus: int = 1, **fields: object
) -> PlanRequest:
    topology = replace(
        make_topology(1, num_gpus, device="cuda", memory_bytes=gpu_bytes),
        host_memory_bytes=host_bytes,
        host_bandwidth=1e9,
    )
    return make_request(tables, topology, **({"transport": "torchrec", "min_cache_share": 0.2} | fields))


def get_shares(plan: Plan) -> list[float]:
    return [table.table.cache_share for table in plan.tables]


def test_nothing_is_cached_where_gpus_have_room_for_all():
    request = make_gpu_request(make_tables([1_000_000] * 3, 64), gpu_bytes=900 * MEGABYTE)
    assert get_shares(make_plan(request)) == [1.0, 1.0, 1.0]


def test_the_table_with_most_rows_for_each_id_is_cached_first():
    tables = (Table("frequent", 1_000_000, 64, 20.0), Table("rare", 1_000_000, 64, 1.0))
    plan = make_plan(make_gpu_request(tables, gpu_bytes=480 * MEGABYTE))
    assert plan.tables[0].table.cache_share == 1
    assert 0.2 <= plan.tables[1].table.cache_share < 1
    assert "in the host's memory" in plan.tables[1].reason


def test_a_cache_is_as_large_as_memory_has_room_for():
    """Shares are tried in steps of at most a fifth of a table: with another step there is no room."""
    request = make_gpu_request(make_tables([1_000_000], 64), gpu_bytes=200 * MEGABYTE)
    plan = make_plan(request)
    (used,) = count_bytes_by_memory_domain(request, plan)
    weight_bytes = plan.tables[0].table.weight_bytes
    assert 200 * MEGABYTE - used < 0.2 * weight_bytes + 16 * 0.2 * 1_000_000
    assert 0.2 < plan.tables[0].table.cache_share < 0.8


@pytest.mark.parametrize(
    ("optimizer", "gpu_bytes_per_row", "host_bytes_per_row"),
    [("sgd", 0, 256), ("rowwise_adagrad", 4, 256), ("adagrad", 0, 512)],
)
def test_bytes_are_those_that_fbgemm_allocates(optimizer: str, gpu_bytes_per_row: int, host_bytes_per_row: int):
    """A slot of the cache has a row's weights, 8 bytes for its number and 8 for its last use; every row has 4 bytes for
    its table's number on the GPU, and one for Adagrad's sum where that is one for the row."""
    rows = 1_000_000
    whole, cached = Table("t", rows, 64), Table("t", rows, 64, cache_share=0.4)
    request = make_gpu_request((whole,), gpu_bytes=10**9, optimizer=optimizer)
    plan = make_plan(request)
    report = make_plan_report(request, replace(plan, tables=(replace(plan.tables[0], table=cached),)))
    table = report.tables[0]
    slots = math.ceil(0.4 * rows)
    assert table.weight_bytes == [slots * 256]
    assert table.optimizer_bytes == [gpu_bytes_per_row * rows]
    # At the start FBGEMM lists the rows' table numbers, in up to 24 bytes each, and makes a tensor of 4 bytes of it.
    assert table.host_bytes == [(host_bytes_per_row + 28) * rows]
    of_index = slots * 16 + rows * 4
    of_ids = 36 * 4096
    assert table.buffer_bytes[0] - make_plan_report(request, plan).tables[0].buffer_bytes[0] == of_index + of_ids
    assert report.weight_bytes == 256 * rows


def test_a_step_fetches_the_rows_that_are_not_cached():
    """Of n ids drawn evenly from R rows, R (1 - (1 - 1 / R)^n) are distinct; the cache has its share of them."""
    rows, ids = 1_000_000, 4096 * 10
    request = make_gpu_request((Table("t", rows, 64, 10.0),), gpu_bytes=200 * MEGABYTE)
    plan = make_plan(request)
    distinct = rows * (1 - (1 - 1 / rows) ** ids)
    expected = (1 - plan.tables[0].table.cache_share) * distinct * 256 / 1e9
    assert make_plan_report(request, plan).step.terms["cache"] == pytest.approx(expected, rel=1e-4)


def test_cached_tables_are_spread_over_gpus():
    request = make_gpu_request(make_tables([1_000_000] * 4, 64), gpu_bytes=300 * MEGABYTE, num_gpus=2)
    plan = make_plan(request)
    assert find_faults(request, plan) == []
    assert {block.rank for table in plan.tables for block in table.blocks} == {0, 1}
    assert any(share < 1 for share in get_shares(plan))


def test_a_rule_for_copies_on_every_rank_is_kept():
    tables = make_tables([1_000_000, 1_000_000], 64)
    rules = (Rule("t0", "data_parallel"), Rule("t1", "row_wise"))
    request = make_gpu_request(tables, gpu_bytes=2000 * MEGABYTE, num_gpus=2, rules=rules, optimizer="sgd")
    # Of the other table each GPU has 128 MB.
    tight = set_memory(request, max(count_bytes_by_memory_domain(request, make_plan(request))) - 60 * MEGABYTE)
    plan = make_plan(tight)
    assert find_faults(tight, plan) == []
    copied, cached = get_shares(plan)
    assert copied == 1.0
    assert cached < 1.0


def test_tables_that_a_rule_splits_by_columns_are_not_cached():
    """FBGEMM's cache has slots as wide as its widest shard."""
    tables = make_tables([1_000_000, 1_000_000], 64)
    rules = (Rule("t0", "column_wise"),)
    request = make_gpu_request(tables, gpu_bytes=200 * MEGABYTE, num_gpus=2, rules=rules, optimizer="sgd")
    plan = make_plan(request)
    assert find_faults(request, plan) == []
    by_columns, cached = get_shares(plan)
    assert by_columns == 1.0
    assert cached < 1.0
    cached_columns = replace(plan.tables[0], table=replace(plan.tables[0].table, cache_share=0.2))
    assert find_faults(request, replace(plan, tables=(cached_columns, plan.tables[1]))) == [
        "t0: column_wise does not work with a cache"
    ]


def test_cached_tables_are_not_split_by_columns():
    tables = make_tables([1_000_000] * 3, 64)
    request = make_gpu_request(tables, gpu_bytes=150 * MEGABYTE, num_gpus=4, optimizer="sgd")
    cached = [table for table in make_plan(request).tables if table.table.is_cached]
    assert cached
    assert not {table.sharding_type for table in cached} & {"column_wise", "table_column_wise"}


def test_of_narrow_tables_a_large_cache_takes_more_than_the_table():
    """Of 4 columns, a row takes 16 bytes, and in a cache 32 and 4 more: only a fifth of the rows and less saves any."""
    request = make_gpu_request(make_tables([5_000_000] * 3, 4), gpu_bytes=10**9, optimizer="sgd")
    (needed,) = count_bytes_by_memory_domain(request, make_plan(request))
    tight = set_memory(request, needed - 1)
    assert sorted(get_shares(make_plan(tight))) == [0.2, 1.0, 1.0]


def test_a_table_that_the_host_has_no_room_for_is_passed_over():
    """The large table has most rows for each id; the host has room for the small one only, which is enough."""
    tables = (Table("large", 10_000_000, 64), Table("small", 1_000_000, 64))
    request = make_gpu_request(tables, gpu_bytes=2700 * MEGABYTE, host_bytes=1000 * MEGABYTE, optimizer="sgd")
    plan = make_plan(request)
    assert find_faults(request, plan) == []
    assert plan.tables[0].table.cache_share == 1
    assert plan.tables[1].table.cache_share < 1


def test_adagrads_numbers_for_each_weight_are_moved_in_every_update():
    """They are never cached: of R distinct rows all move, beside the weights of those that are not cached."""
    terms: list[float] = []
    for optimizer in ("sgd", "adagrad"):
        request = make_gpu_request((Table("t", 1_000_000, 64, 10.0),), gpu_bytes=10**9, optimizer=optimizer)
        plan = make_plan(request)
        cached = replace(plan.tables[0], table=replace(plan.tables[0].table, cache_share=0.75))
        terms.append(make_plan_report(request, replace(plan, tables=(cached,))).step.terms["cache"])
    assert terms[1] == pytest.approx(5 * terms[0])


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5])
def test_a_share_that_no_cache_can_have_is_refused(share: float):
    with pytest.raises(PlanError, match="a cache cannot have") as refused:
        make_plan(make_gpu_request(make_tables([10], 64), gpu_bytes=10**9, min_cache_share=share))
    assert refused.value.field == "min_cache_share"


def test_a_request_cannot_say_which_tables_are_cached():
    with pytest.raises(PlanError, match="the plan decides") as refused:
        make_plan(make_gpu_request((Table("t", 10, 64, cache_share=0.5),), gpu_bytes=10**9))
    assert (refused.value.field, refused.value.table) == ("tables", "t")


@pytest.mark.parametrize("change", [{"transport": "network"}, {"min_cache_share": 1.0}])
def test_without_leave_to_cache_there_is_no_plan(change: dict[str, object]):
    tables = make_tables([1_000_000] * 2, 64)
    with pytest.raises(NoPlanError):
        make_plan(make_gpu_request(tables, gpu_bytes=480 * MEGABYTE, **change))


def test_a_refusal_proposes_caches_where_these_are_not_allowed():
    request = make_gpu_request(make_tables([1_000_000] * 2, 64), gpu_bytes=480 * MEGABYTE, min_cache_share=1.0)
    with pytest.raises(NoPlanError) as refused:
        make_plan(request)
    alternatives = refused.value.diagnosis.alternatives
    cached = next(other for other in alternatives if other.min_cache_share < 1)
    assert cached == replace(request, min_cache_share=0.2)
    assert find_faults(cached, make_plan(cached)) == []


def test_a_refusal_proposes_smaller_caches():
    request = make_gpu_request(make_tables([10_000_000], 64), gpu_bytes=500 * MEGABYTE, global_size=64)
    with pytest.raises(NoPlanError) as refused:
        make_plan(request)
    cached = next(other for other in refused.value.diagnosis.alternatives if other.min_cache_share < 0.2)
    assert find_faults(cached, make_plan(cached)) == []


def test_a_refusal_says_how_much_memory_the_host_lacks():
    """480 MB of GPU memory have no room for 516 MB of tables: one of them has to stay on the host, with 284 MB."""
    request = make_gpu_request(make_tables([1_000_000] * 2, 64), gpu_bytes=480 * MEGABYTE, host_bytes=200 * MEGABYTE)
    with pytest.raises(NoPlanError) as refused:
        make_plan(request)
    diagnosis = refused.value.diagnosis
    assert diagnosis.least_host_bytes == 284 * MEGABYTE
    assert diagnosis.least_memory_bytes is not None
    # Without caches the GPU needs room for both tables.
    assert diagnosis.least_memory_bytes > 512 * MEGABYTE
    roomy = next(other for other in diagnosis.alternatives if other.topology.host_memory_bytes > 200 * MEGABYTE)
    assert find_faults(roomy, make_plan(roomy)) == []


def test_the_host_needs_memory_for_more_than_tables():
    tables = make_tables([1_000_000] * 2, 64)
    request = make_gpu_request(tables, gpu_bytes=480 * MEGABYTE, host_bytes=288 * MEGABYTE)
    assert make_plan(request)
    crowded = replace(request, dense=replace(request.dense, host_memory_bytes=5 * MEGABYTE))
    with pytest.raises(NoPlanError):
        make_plan(crowded)


def test_the_check_finds_a_cache_that_the_request_does_not_allow():
    request = make_gpu_request(make_tables([1_000_000] * 2, 64), gpu_bytes=480 * MEGABYTE)
    plan = make_plan(request)
    assert find_faults(request, plan) == []
    assert "does not allow" in find_faults(replace(request, min_cache_share=1.0), plan)[0]
    assert "less of it is cached" in find_faults(replace(request, min_cache_share=0.9), plan)[0]
    small = replace(request, topology=replace(request.topology, host_memory_bytes=1000))
    assert find_faults(small, plan) == ["host 0 needs 284,000,000 bytes and has 1,000"]


@given(
    st.lists(st.integers(1, 3_000_000), min_size=1, max_size=8),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([4, 16, 32]),
    st.sampled_from(["sgd", "rowwise_adagrad", "adagrad"]),
    st.floats(0.15, 1.1),
    st.floats(0.3, 1.5),
)
def test_plans_are_sound_and_refusals_propose_what_works(
    sizes: list[int], num_nodes: int, num_gpus: int, dim: int, optimizer: str, gpu_part: float, host_part: float
):
    tables = make_tables(sizes, dim)
    total = sum(table.weight_bytes for table in tables)
    one_node = make_gpu_request(
        tables,
        gpu_bytes=int(gpu_part * total / num_gpus / num_nodes) + 20 * MEGABYTE,
        host_bytes=max(1, int(host_part * total / num_nodes)),
        num_gpus=num_gpus,
        optimizer=optimizer,
        global_size=36 * 64,
    )
    request = replace(one_node, topology=replace(one_node.topology, num_nodes=num_nodes))
    try:
        plan = make_plan(request)
    except NoPlanError as error:
        for other in error.diagnosis.alternatives:
            assert find_faults(other, make_plan(other)) == []
    else:
        assert find_faults(request, plan) == []
