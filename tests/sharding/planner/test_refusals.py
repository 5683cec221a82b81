"""A request without a plan is told why, and what would do."""

import re
import tomllib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ByteSize, TypeAdapter

from dlrm.config import parse_job, resolve
from dlrm.planning.here import Here
from dlrm.planning.request import request_of as request_from_job
from sharding.planner import Dense, PlanError, PlanRequest, Rule, Table, make_plan
from sharding.planner.check import bytes_by_memory, find_faults
from sharding.planner.machine import Speeds
from sharding.planner.types import COLUMN_TYPES, SHARDING_TYPES
from tests.sharding.planner.made_requests import request_of, requests, tables_of, topology_of

TOO_MUCH = request_of(
    tables_of([3_000_000] * 8, 64), topology_of(1, 4, device="cuda", memory_bytes=10**9), optimizer="adagrad"
)
"""12.3 GB with the optimizer's state, for 4 GB."""
BYTES = TypeAdapter(ByteSize)


def refusal_of(request: PlanRequest) -> PlanError:
    with pytest.raises(PlanError) as caught:
        make_plan(request)
    return caught.value


def settings_of(proposal: str) -> dict[str, Any]:
    """By field of a job's document."""
    return {
        field: tomllib.loads(f"value = {value}")["value"]
        for field, value in re.findall(r'([a-z_.]+) = ("[^"]*"|\[\]|\d+)', proposal)
    }


def with_chunk(request: PlanRequest, chunk_size: int) -> PlanRequest:
    """As a job asks that has such a chunk: its activations are in proportion."""
    kept = request.dense.memory_bytes
    kept = kept | {"activations": kept.get("activations", 0) * chunk_size // request.chunk_size}
    return replace(request, chunk_size=chunk_size, dense=replace(request.dense, memory_bytes=kept))


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
                request = with_chunk(request, value)
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
        assert find_faults(proposed, make_plan(proposed)) == []


def amount_of(text: str) -> Fraction:
    """Exactly, unlike whole bytes."""
    number, unit = text.split()
    return Fraction(number) * {"GB": 10**9, "MB": 10**6, "GiB": 2**30, "MiB": 2**20}[unit]


def assert_adds_up(error: PlanError) -> None:
    """What is needed is what there is and what is short, and what it is for."""
    amount = r"([\d.]+ [GM]i?B)"
    told = re.search(rf"needs {amount} and has {amount}, {amount} short. The {amount} are (.*)", error.message)
    assert told, error.message
    needed, there, short, whole = map(amount_of, told.groups()[:4])
    assert whole == needed
    # One decimal of a larger unit stands beside two of a smaller one.
    assert abs(needed - there - short) <= Fraction(6, 100) * amount_of(f"1 {told[1].split()[1]}")
    assert sum(map(amount_of, re.findall(amount, told[5]))) == needed


def with_memory(request: PlanRequest, num_bytes: int) -> PlanRequest:
    return replace(request, topology=replace(request.topology, memory_bytes=num_bytes))


def test_too_little_memory_names_the_table_the_bytes_and_what_would_fit():
    error = refusal_of(TOO_MUCH)
    assert error.table in {table.name for table in TOO_MUCH.tables}
    assert error.short_bytes is not None
    assert error.short_bytes > 2 * 10**9
    assert as_proposed(TOO_MUCH, error.valid[0]).topology.memory_bytes == 10**9 + error.short_bytes
    assert re.search(r"the fullest rank needs \d\.\d+ GB and has 1 GB, \d\.\d+ GB short", error.message)
    assert_all_do(TOO_MUCH, error)


@settings(max_examples=100, deadline=None)
@given(drawn=requests(), share=st.sampled_from([64, 4096]), part=st.floats(0.1, 0.9))
def test_whatever_is_proposed_does(drawn: PlanRequest, share: int, part: float):
    whole = replace(drawn, global_size=share * drawn.topology.world_size, chunk_size=min(512, share))
    tight = with_memory(whole, int(part * max(bytes_by_memory(whole, make_plan(whole)))))
    try:
        make_plan(tight)
    except PlanError as refused:
        error = refused
    else:
        return
    assert error.short_bytes is not None
    assert_adds_up(error)
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


@pytest.mark.parametrize(("device", "written"), [("cpu", "3.02 GiB"), ("cpu", "512 MiB"), ("cuda", "80.3 GB")])
def test_the_memory_that_there_is_is_told_as_it_was_written(device: str, written: str):
    topology = topology_of(1, 2, device=device, memory_bytes=int(BYTES.validate_python(written)))
    message = refusal_of(request_of(tables_of([50_000_000] * 80, 64), topology)).message
    assert f" and has {written}, " in message


def test_a_little_too_little_is_not_told_to_be_much():
    tables = tables_of([3_000_000] * 8, 64)
    request = request_of(tables, topology_of(1, 1, memory_bytes=2**40), plan="table_wise")
    (needed,) = bytes_by_memory(request, make_plan(request))
    short = refusal_of(with_memory(request, needed - 1)).short_bytes
    assert short is not None
    assert 1 <= short <= needed / 100


def test_the_number_of_nodes_that_is_named_does_and_divides_the_batch():
    request = replace(TOO_MUCH, global_size=4 * 5 * 7 * 101, chunk_size=512)
    error = refusal_of(request)
    (named,) = (settings_of(valid) for valid in error.valid if "resources.nodes" in valid)
    make_plan(replace(request, topology=replace(request.topology, num_nodes=4)))
    assert named["resources.nodes"] == 5
    assert_all_do(request, error)


def test_where_no_number_of_nodes_divides_the_batch_none_is_named():
    request = replace(TOO_MUCH, global_size=4 * 1009, chunk_size=512)
    assert not any("resources.nodes" in valid for valid in refusal_of(request).valid)


def test_a_smaller_batch_is_named_with_the_chunk_that_it_allows():
    tables = tables_of([100_000] * 4, 64)
    wide = request_of(tables, topology_of(2, 3, device="cuda"), global_size=6 * 5 * 2**14, plan="table_wise")
    most = max(bytes_by_memory(wide, make_plan(wide)))
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
            bytes_by_memory(of, make_plan(of)) for of in (on_device, replace(on_device, exchange_dtype="fp16"))
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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_smaller_chunk_alone_is_named_first_where_it_would_do(device: str):
    topology = topology_of(1, 2, device=device)
    activations = Dense({"activations": 4096 * 2**20, "program": 2**28})
    wide = request_of(tables_of([100_000] * 4, 64), topology, global_size=2**14, chunk_size=4096, dense=activations)
    most = max(bytes_by_memory(wide, make_plan(wide)))
    request = with_memory(wide, most - 5 * 2**29 * topology.ranks_per_memory_domain)
    error = refusal_of(request)
    # Half is not enough.
    assert settings_of(error.valid[0]) == {"batch.chunk_size": 1024}
    assert_adds_up(error)
    assert_all_do(request, error)


def test_no_chunk_is_named_that_is_too_small_to_be_fast():
    activations = Dense({"activations": 512 * 2**20})
    request = request_of(tables_of([1000]), topology_of(1, 1, memory_bytes=2**27), dense=activations)
    error = refusal_of(request)
    assert not any(set(settings_of(valid)) == {"batch.chunk_size"} for valid in error.valid)
    # 128 samples and the table are no more than this.
    make_plan(with_chunk(with_memory(request, 2**27 + 2**24), 128))
    assert_all_do(request, error)


def test_a_chunk_beyond_the_share_of_a_rank_is_halved_from_the_share():
    activations = Dense({"activations": 1024 * 2**20})
    whole = request_of(
        tables_of([1000]), topology_of(1, 1, memory_bytes=3 * 2**28), global_size=1024, dense=activations
    )
    error = refusal_of(replace(whole, chunk_size=2**20))
    assert settings_of(error.valid[0]) == {"batch.chunk_size": 512}


def request_of_job(**batch: Any) -> PlanRequest:
    job = parse_job({"data": {"format": "synthetic"}, "batch": {"global_size": 16_384, **batch}})
    speeds = Speeds(one_copy=1e10, all_copies=1.6e10, loopback=2e9, flops=1e11, flops_bf16=4e11)
    here = Here(speeds, num_cores=2, memory_bytes=2**34, has_operators=True)
    return request_from_job(resolve(job), tables_of([1000] * 20, 64), 13, here)


def test_a_job_with_the_chunk_that_is_named_has_a_plan():
    """What a proposal takes for its activations is what a job with such a document asks for."""
    wide = request_of_job(chunk_size=8192)
    (needed,) = set(bytes_by_memory(wide, make_plan(wide)))
    saved = wide.dense.memory_bytes["activations"] // 2 * wide.topology.ranks_per_memory_domain
    error = refusal_of(with_memory(wide, needed - saved + 2**20))
    assert settings_of(error.valid[0]) == {"batch.chunk_size": 4096}
    asked = request_of_job(chunk_size=4096)
    assert with_chunk(wide, 4096) == asked
    make_plan(with_memory(asked, needed - saved + 2**20))


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_a_table_that_may_be_split_is_told_whole_and_in_its_smallest_parts(optimizer: str):
    tables = tables_of([8_000_000] * 3, 128)
    topology = topology_of(2, 4, device="cuda", memory_bytes=10**9)
    error = refusal_of(request_of(tables, topology, optimizer=optimizer))
    whole, part = ("4.1 GB", "512 MB") if optimizer == "sgd" else ("4.13 GB", "516 MB")
    assert f"it may be split: {whole} whole, {part} a rank in 8 parts" in error.message
    assert_adds_up(error)


@pytest.mark.parametrize(("plan", "rules"), [("auto", (Rule("small_*", "row_wise"),)), ("row_wise", ())])
def test_a_rule_whose_buffers_take_the_most_is_named_and_no_innocent_table(plan: str, rules: tuple[Rule, ...]):
    small = tuple(Table(f"small_{number}", 1000, 128) for number in range(200))
    tables = (Table("large", 10_000_000, 128), *small) if rules else small
    topology = topology_of(4, 8, device="cuda", memory_bytes=20 * 10**9)
    request = request_of(tables, topology, plan=plan, rules=rules, global_size=2**17, chunk_size=2**12)
    error = refusal_of(request)
    who = "the rule 'small_*', row_wise, takes " if rules else "the plan row_wise takes "
    assert error.message.startswith(who)
    assert "for buffers of its tables (200, in up to 32 parts each)" in error.message
    assert error.table == "small_0"
    assert_adds_up(error)
    assert_all_do(request, error)


def test_a_small_table_is_not_blamed_for_what_all_of_them_and_the_dense_part_take():
    wide = request_of_job(chunk_size=8192)
    error = refusal_of(with_memory(wide, max(bytes_by_memory(wide, make_plan(wide))) // 2))
    assert error.message.startswith("the 20 tables find no room together: the fullest node needs ")
    assert re.search(
        r"[\d.]+ MiB program, [\d.]+ MiB activations, |GiB program, [\d.]+ GiB activations, ", error.message
    )
    assert_adds_up(error)


def test_a_rule_that_costs_nothing_is_not_blamed():
    """In one memory gradients take as much whatever the type."""
    tables = tables_of([10] * 8, 64)
    request = request_of(tables, topology_of(1, 2), global_size=2**20, plan="row_wise", transport="memory")
    (needed,) = bytes_by_memory(request, make_plan(request))
    error = refusal_of(with_memory(request, needed // 2))
    assert error.message.startswith("table t")
    assert " GiB gradients of pooled embeddings" in error.message
    assert_adds_up(error)
