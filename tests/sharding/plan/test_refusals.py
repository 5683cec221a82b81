"""A request without a plan is told why, and what would do."""

import re
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ByteSize, TypeAdapter

from sharding.plan import Dense, PlanError, PlanRequest, Rule, Table, plan_of
from sharding.plan.check import faults_of, memory_of_pools
from sharding.plan.plan import COLUMN_TYPES, SHARDING_TYPES
from tests.sharding.plan.made_requests import request_of, requests, tables_of, topology_of

TOO_MUCH = request_of(
    tables_of([3_000_000] * 8, 64), topology_of(1, 4, device="cuda", memory_bytes=10**9), optimizer="adagrad"
)
"""12.3 GB with the optimizer's state, for 4 GB."""
BYTES = TypeAdapter(ByteSize)


def refusal_of(request: PlanRequest) -> PlanError:
    with pytest.raises(PlanError) as caught:
        plan_of(request)
    return caught.value


def settings_of(proposal: str) -> dict[str, Any]:
    """By field of a job's document."""
    return {
        field: tomllib.loads(f"value = {value}")["value"]
        for field, value in re.findall(r'([a-z_.]+) = ("[^"]*"|\[\]|\d+)', proposal)
    }


def as_proposed(request: PlanRequest, proposal: str) -> PlanRequest:
    """What a job asks for that has these settings in its document."""
    for field, value in settings_of(proposal).items():
        match field:
            case "resources.memory" | "sharding.topology.gpu_memory":
                topology = replace(request.topology, memory_bytes=int(BYTES.validate_python(value)))
                request = replace(request, topology=topology)
            case "resources.nodes":
                request = replace(request, topology=replace(request.topology, num_nodes=value))
            case "table_optimizer.name":
                request = replace(request, optimizer=value)
            case "sharding.plan":
                request = replace(request, plan=value)
            case "sharding.tables":
                request = replace(request, rules=tuple(value))
            case "sharding.exchange_dtype":
                request = replace(request, exchange_dtype=value)
            case "batch.global_size":
                request = replace(request, global_size=value)
            case "batch.chunk_size":
                request = replace(request, chunk_size=value)
            case _:
                pytest.fail(f"{field} is no setting")
    share, rest = divmod(request.global_size, request.topology.world_size)
    assert (rest, request.chunk_size <= share) == (0, True), "a document would be refused"
    return request


def assert_all_do(request: PlanRequest, error: PlanError) -> None:
    """Every proposal, read back as a user would write it."""
    for proposal in error.valid:
        proposed = as_proposed(request, proposal)
        assert proposed != request, proposal
        assert faults_of(proposed, plan_of(proposed)) == []


def with_memory(request: PlanRequest, num_bytes: int) -> PlanRequest:
    return replace(request, topology=replace(request.topology, memory_bytes=num_bytes))


def test_too_little_memory_names_the_table_the_bytes_and_what_would_fit():
    error = refusal_of(TOO_MUCH)
    assert error.table in {table.name for table in TOO_MUCH.tables}
    assert error.short_bytes is not None
    assert error.short_bytes > 2 * 10**9
    assert as_proposed(TOO_MUCH, error.valid[0]).topology.memory_bytes == 10**9 + error.short_bytes
    assert re.search(r"the 1GB of each rank: \d\.\d+GB short", error.message)
    assert_all_do(TOO_MUCH, error)


@settings(max_examples=100, deadline=None)
@given(drawn=requests(), share=st.sampled_from([64, 4096]), part=st.floats(0.1, 0.9))
def test_whatever_is_proposed_does(drawn: PlanRequest, share: int, part: float):
    whole = replace(drawn, global_size=share * drawn.topology.world_size, chunk_size=min(512, share))
    tight = with_memory(whole, int(part * max(memory_of_pools(whole, plan_of(whole)))))
    try:
        plan_of(tight)
    except PlanError as refused:
        error = refused
    else:
        return
    assert error.short_bytes is not None
    assert_all_do(tight, error)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", SHARDING_TYPES)
def test_a_fixed_plan_without_room_is_told_the_bytes_that_are_short(kind: str, device: str):
    topology = topology_of(2, 4, device=device, memory_bytes=3 * 10**8)
    tables = tables_of([6_000_000, *[1_000_000] * 5], 64)
    request = request_of(tables, topology, plan=kind, optimizer="sgd", dense=Dense({"program": 2**26}))
    error = refusal_of(request)
    assert error.table in {table.name for table in tables}
    assert error.short_bytes is not None
    assert set(settings_of(error.valid[0])) == {
        "resources.memory" if device == "cpu" else "sharding.topology.gpu_memory"
    }
    assert_all_do(request, error)
    # It is not much more than what is needed.
    enough = 3 * 10**8 + error.short_bytes
    refusal_of(with_memory(request, int(0.97 * enough)))


def test_copies_in_the_memory_of_one_machine_are_told_the_bytes_that_are_short():
    topology = topology_of(1, 2, memory_bytes=10**9)
    request = request_of(tables_of([3_000_000] * 8, 64), topology, plan="data_parallel", transport="memory")
    error = refusal_of(request)
    assert "with a copy on every rank" in error.message
    assert error.short_bytes is not None
    # Weights and the sums of their gradients, of two ranks.
    assert error.short_bytes > 8 * 3_000_000 * 64 * 4 * 2 * 2 - 10**9
    assert_all_do(request, error)


def test_tables_that_are_all_to_be_on_one_rank_are_told_the_bytes_that_are_short():
    topology = topology_of(1, 8, device="cuda", memory_bytes=80 * 10**9)
    tables = tables_of([80_000_000] * 10, 128)
    request = request_of(tables, topology, rules=(Rule("*", "table_wise", (0,)),))
    error = refusal_of(request)
    assert error.short_bytes is not None
    assert error.short_bytes > 10 * 80_000_000 * 128 * 4 - 80 * 10**9
    assert_all_do(request, error)


@pytest.mark.parametrize("memory_bytes", [3_249_000_000, 3_000_000_001, 2**31 + 1, 999_999_999])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_memory_that_is_named_does_however_much_there_was(memory_bytes: int, device: str):
    topology = topology_of(1, 2, device=device, memory_bytes=memory_bytes)
    request = request_of(tables_of([5_000_000] * 8, 64), topology, optimizer="adagrad")
    error = refusal_of(request)
    assert re.fullmatch(
        r'resources\.memory = "[\d.]+GiB" \(of memory a node\)'
        if device == "cpu"
        else r'sharding\.topology\.gpu_memory = "[\d.]+GB" \(of memory a GPU\)',
        error.valid[0],
    )
    assert_all_do(request, error)


@pytest.mark.parametrize(("device", "written"), [("cpu", "3.02GiB"), ("cpu", "512MiB"), ("cuda", "80.3GB")])
def test_the_memory_that_there_is_is_told_as_it_was_written(device: str, written: str):
    topology = topology_of(1, 2, device=device, memory_bytes=int(BYTES.validate_python(written)))
    message = refusal_of(request_of(tables_of([50_000_000] * 80, 64), topology)).message
    assert f"do not fit the {written} of " in message


def test_a_little_too_little_is_not_told_to_be_much():
    tables = tables_of([3_000_000] * 8, 64)
    request = request_of(tables, topology_of(1, 1, memory_bytes=2**40), plan="table_wise")
    (needed,) = memory_of_pools(request, plan_of(request))
    short = refusal_of(with_memory(request, needed - 1)).short_bytes
    assert short is not None
    assert 1 <= short <= needed / 100


def test_the_number_of_nodes_that_is_named_does_and_divides_the_batch():
    request = replace(TOO_MUCH, global_size=4 * 5 * 7 * 101, chunk_size=512)
    error = refusal_of(request)
    (named,) = (settings_of(valid) for valid in error.valid if "resources.nodes" in valid)
    plan_of(replace(request, topology=replace(request.topology, num_nodes=4)))
    assert named["resources.nodes"] == 5
    assert_all_do(request, error)


def test_where_no_number_of_nodes_divides_the_batch_none_is_named():
    request = replace(TOO_MUCH, global_size=4 * 1009, chunk_size=512)
    assert not any("resources.nodes" in valid for valid in refusal_of(request).valid)


def test_a_smaller_batch_is_named_with_the_chunk_that_it_allows():
    tables = tables_of([100_000] * 4, 64)
    wide = request_of(tables, topology_of(2, 3, device="cuda"), global_size=6 * 5 * 2**14, plan="table_wise")
    most = max(memory_of_pools(wide, plan_of(wide)))
    request = replace(with_memory(wide, most // 3), chunk_size=5 * 2**14)
    error = refusal_of(request)
    (named,) = (settings_of(valid) for valid in error.valid if "batch.global_size" in valid)
    assert named["batch.chunk_size"] == named["batch.global_size"] // 6 < 5 * 2**14
    assert_all_do(request, error)


def test_a_rule_that_no_number_of_nodes_can_keep_gets_none_proposed():
    """However many tables there are beside it."""
    tables = (Table("large", 100_000_000, 128), *tables_of([500_000] * 100, 128))
    topology = topology_of(4, 8, device="cuda", memory_bytes=16 * 10**9)
    request = request_of(tables, topology, rules=(Rule("large", "table_wise"),), global_size=2**15)
    error = refusal_of(request)
    assert error.table == "large"
    assert [list(settings_of(valid)) for valid in error.valid] == [
        ["sharding.topology.gpu_memory"],
        ["sharding.tables"],
    ]
    assert_all_do(request, error)


def test_another_optimizer_is_named_where_it_would_do():
    tight = with_memory(TOO_MUCH, 2 * 10**9)
    error = refusal_of(tight)
    assert any(valid.startswith('table_optimizer.name = "rowwise_adagrad"') for valid in error.valid)
    assert_all_do(tight, error)


def test_an_automatic_plan_is_named_where_a_fixed_one_has_no_room():
    tables = tables_of([6_000_000, 10], 64)
    request = request_of(
        tables, topology_of(1, 4, device="cuda", memory_bytes=10**9), optimizer="sgd", plan="table_wise"
    )
    error = refusal_of(request)
    assert (error.table, 'sharding.plan = "auto"' in error.valid) == ("t0", True)
    assert_all_do(request, error)


def test_half_the_number_format_is_named_where_it_keeps_less():
    """On GPUs what is looked up is fp32 whatever travels."""
    request = request_of(tables_of([10] * 8, 64), topology_of(2, 2), global_size=2**20, plan="table_wise")
    for device, would_do in (("cpu", True), ("cuda", False)):
        on_device = replace(request, topology=replace(request.topology, device=device))
        (wide, *_), (narrow, *_) = (
            memory_of_pools(of, plan_of(of)) for of in (on_device, replace(on_device, exchange_dtype="fp16"))
        )
        assert (narrow < wide) == would_do
        tight = with_memory(on_device, wide - 1)
        assert ('sharding.exchange_dtype = "fp16"' in refusal_of(tight).valid) == would_do


@pytest.mark.parametrize("kind", COLUMN_TYPES)
def test_split_rows_are_refused_to_an_optimizer_of_whole_rows(kind: str):
    rules = (Rule("t1", kind),)  # pyright: ignore[reportArgumentType]
    error = refusal_of(request_of(tables_of([50, 60]), topology_of(1, 2), rules=rules))
    assert (error.table, error.field) == ("t1", "rules.0.type")
    assert "row_wise" in error.valid[0]
    assert "adagrad or sgd" in error.valid[1]


@pytest.mark.parametrize(
    ("rules", "field", "words"),
    [
        ((Rule("x*", "row_wise"),), "rules.0.pattern", "'x*' claims no table"),
        ((Rule("*", "row_wise"), Rule("t0", "auto")), "rules.1.pattern", "rules before it claim them"),
        ((Rule("*", "row_wise", (0, 4)),), "rules.0.ranks", "there is no rank 4 among 4"),
        ((Rule("*", "row_wise", (1, 1)),), "rules.0.ranks", "names a rank twice"),
        ((Rule("*", "row_wise", ()),), "rules.0.ranks", "names no rank"),
        ((Rule("*", "data_parallel", (0, 1)),), "rules.0.ranks", "on every rank"),
        ((Rule("*", "table_row_wise", (1, 2)),), "rules.0.ranks", "on one node"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_named(rules: tuple[Rule, ...], field: str, words: str):
    error = refusal_of(request_of(tables_of([50, 60]), topology_of(2, 2), rules=rules))
    assert error.field == field
    assert words in error.message
    assert error.valid
