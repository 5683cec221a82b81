"""A job whose tables do not fit is refused in words, with settings of its document that make them fit."""

import re
import tomllib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize, TypeAdapter

from dlrm.config import JobConfig, resolve
from dlrm.planning.machine_resources import MachineResources
from dlrm.planning.refusal import make_plan_or_refuse
from dlrm.planning.request import make_plan_request
from sharding.planner import Dense, NoPlanError, PlanError, PlanRequest, Rule, Table, Transport, make_plan
from sharding.planner.check import count_bytes_by_memory_domain, find_faults
from sharding.planner.machine import Speeds
from sharding.planner.types import Device
from tests.sharding.planner.plan_requests import (
    REQUEST_WITHOUT_ROOM,
    draw_requests,
    make_request,
    make_tables,
    make_topology,
    set_memory,
    tighten,
)

BYTES = TypeAdapter(ByteSize)


def refusal_of(request: PlanRequest) -> PlanError:
    with pytest.raises(PlanError) as caught:
        make_plan_or_refuse(request)
    assert not isinstance(caught.value, NoPlanError)
    return caught.value


def settings_of(proposal: str) -> dict[str, Any]:
    """Return the values of a proposal by field of the job's document."""
    return {
        field: tomllib.loads(f"value = {value}")["value"]
        for field, value in re.findall(r'([a-z_.]+) = ("[^"]*"|\[\]|\d+(?:\.\d+)?)', proposal)
    }


def with_chunk(request: PlanRequest, chunk_size: int) -> PlanRequest:
    """Return the request of a job with such a chunk: its activations are in proportion."""
    kept = request.dense.memory_bytes
    kept = kept | {"activations": kept.get("activations", 0) * chunk_size // request.chunk_size}
    return replace(request, chunk_size=chunk_size, dense=replace(request.dense, memory_bytes=kept))


def as_proposed(request: PlanRequest, proposal: str) -> PlanRequest:
    """Return the request of a job with these settings in its document."""
    for field, value in settings_of(proposal).items():
        match field:
            case "resources.memory" if request.topology.device == "cuda":
                host_memory_bytes = int(BYTES.validate_python(value))
                request = replace(request, topology=replace(request.topology, host_memory_bytes=host_memory_bytes))
            case "sharding.min_cache_share":
                request = replace(request, min_cache_share=value)
            case "resources.memory" | "sharding.topology.gpu_memory":
                request = set_memory(request, int(BYTES.validate_python(value)))
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
            case "sharding.table_dtype":
                request = replace(request, tables=tuple(replace(table, dtype=value) for table in request.tables))
            case "sharding.resident_memory":
                request = replace(request, resident_bytes=int(BYTES.validate_python(value)))
            case "batch.chunk_size":
                request = with_chunk(request, value)
            case _:
                pytest.fail(f"{field} is no setting")
    share, rest = divmod(request.global_size, request.topology.world_size)
    assert (rest, request.chunk_size <= share) == (0, True), "a document would be refused"
    return request


def assert_all_do(request: PlanRequest, error: PlanError) -> None:
    """Assert that every proposal has a plan, read back as a user would write it."""
    for proposal in error.valid:
        proposed = as_proposed(request, proposal)
        assert proposed != request, proposal
        assert find_faults(proposed, make_plan(proposed)) == []


def amount_of(text: str) -> Fraction:
    """Return an amount exactly, which whole bytes are not."""
    number, unit = text.split()
    return Fraction(number) * {"GB": 10**9, "MB": 10**6, "GiB": 2**30, "MiB": 2**20}[unit]


def assert_adds_up(error: PlanError) -> None:
    """Assert that what is needed is what there is plus what is short, and the sum of what it is for."""
    amount = r"([\d.]+ [GM]i?B)"
    found = re.search(rf"needs {amount} and has {amount}, {amount} short. The {amount} are (.*)", error.message)
    assert found, error.message
    needed, there, short, whole = map(amount_of, found.groups()[:4])
    assert whole == needed
    # One decimal of a larger unit stands beside two of a smaller one.
    assert abs(needed - there - short) <= Fraction(6, 100) * amount_of(f"1 {found[1].split()[1]}")
    assert sum(map(amount_of, re.findall(amount, found[5]))) == needed


def test_too_little_memory_names_the_table_the_bytes_and_what_would_fit():
    error = refusal_of(REQUEST_WITHOUT_ROOM)
    assert error.table in {table.name for table in REQUEST_WITHOUT_ROOM.tables}
    assert error.short_bytes is not None
    assert error.short_bytes > 2 * 10**9
    assert as_proposed(REQUEST_WITHOUT_ROOM, error.valid[0]).topology.memory_bytes == 10**9 + error.short_bytes
    assert re.search(r"the fullest rank needs \d\.\d+ GB and has 1 GB, \d\.\d+ GB short", error.message)
    assert_all_do(REQUEST_WITHOUT_ROOM, error)


@given(drawn=draw_requests(), share=st.sampled_from([64, 4096]), part=st.floats(0.1, 0.9))
def test_whatever_is_proposed_does(drawn: PlanRequest, share: int, part: float):
    tight = tighten(drawn, share, part)
    try:
        make_plan_or_refuse(tight)
    except PlanError as refused:
        error = refused
    else:
        return
    assert error.short_bytes is not None
    assert_adds_up(error)
    assert_all_do(tight, error)


@pytest.mark.parametrize("memory_bytes", [3_249_000_000, 3_000_000_001, 2**31 + 1, 999_999_999])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_memory_that_is_named_does_however_much_there_was(memory_bytes: int, device: str):
    topology = make_topology(1, 2, device=device, memory_bytes=memory_bytes)
    request = make_request(make_tables([5_000_000] * 8, 64), topology, optimizer="adagrad")
    error = refusal_of(request)
    assert re.fullmatch(
        r'resources\.memory = "[\d.]+GiB" \(memory of a node\)'
        if device == "cpu"
        else r'sharding\.topology\.gpu_memory = "[\d.]+GB" \(GPUs with that much memory each\)',
        error.valid[0],
    )
    assert_all_do(request, error)


@pytest.mark.parametrize(("device", "written"), [("cpu", "3.02 GiB"), ("cpu", "512 MiB"), ("cuda", "80.3 GB")])
def test_the_memory_that_there_is_is_told_as_it_was_written(device: str, written: str):
    topology = make_topology(1, 2, device=device, memory_bytes=int(BYTES.validate_python(written)))
    message = refusal_of(make_request(make_tables([50_000_000] * 80, 64), topology)).message
    assert f" and has {written}, " in message


def test_the_number_of_nodes_that_is_named_does_and_divides_the_batch():
    request = replace(REQUEST_WITHOUT_ROOM, global_size=4 * 5 * 7 * 101, chunk_size=512)
    error = refusal_of(request)
    (named,) = (settings_of(valid) for valid in error.valid if "resources.nodes" in valid)
    make_plan(replace(request, topology=replace(request.topology, num_nodes=4)))
    assert named["resources.nodes"] == 5
    assert_all_do(request, error)


def test_a_smaller_batch_is_named_with_the_chunk_that_it_allows():
    tables = make_tables([100_000] * 4, 64)
    wide = make_request(tables, make_topology(2, 3, device="cuda"), global_size=6 * 5 * 2**14, plan="table_wise")
    most = max(count_bytes_by_memory_domain(wide, make_plan(wide)))
    request = replace(set_memory(wide, most // 3), chunk_size=5 * 2**14)
    error = refusal_of(request)
    (named,) = (settings_of(valid) for valid in error.valid if "batch.global_size" in valid)
    assert named["batch.chunk_size"] == named["batch.global_size"] // 6 < 5 * 2**14
    assert_all_do(request, error)


def test_a_rule_that_no_number_of_nodes_can_keep_gets_none_proposed():
    """However many other tables there are."""
    tables = (Table("large", 100_000_000, 128), *make_tables([500_000] * 100, 128))
    topology = make_topology(4, 8, device="cuda", memory_bytes=16 * 10**9)
    request = make_request(tables, topology, rules=(Rule("large", "table_wise"),), global_size=2**15)
    error = refusal_of(request)
    assert error.table == "large"
    assert [list(settings_of(valid)) for valid in error.valid] == [
        ["sharding.topology.gpu_memory"],
        ["sharding.tables"],
    ]
    assert_all_do(request, error)


def test_another_optimizer_is_named_where_it_would_do():
    tight = set_memory(REQUEST_WITHOUT_ROOM, 2 * 10**9)
    error = refusal_of(tight)
    assert any(valid.startswith('table_optimizer.name = "rowwise_adagrad"') for valid in error.valid)
    assert_all_do(tight, error)


def test_an_automatic_plan_is_named_where_a_fixed_one_has_no_room():
    tables = make_tables([6_000_000, 10], 64)
    request = make_request(
        tables, make_topology(1, 4, device="cuda", memory_bytes=10**9), optimizer="sgd", plan="table_wise"
    )
    error = refusal_of(request)
    assert (error.table, 'sharding.plan = "auto"' in error.valid) == ("t0", True)
    assert_all_do(request, error)


@pytest.mark.parametrize(("device", "transport"), [("cpu", "network"), ("cuda", "torchrec")])
def test_half_the_number_format_is_named_where_it_keeps_less(device: Device, transport: Transport):
    topology = make_topology(2, 2, device=device)
    tables = make_tables([10] * 8, 64)
    request = make_request(tables, topology, global_size=2**20, plan="table_wise", transport=transport)
    (wide, *_), (narrow, *_) = (
        count_bytes_by_memory_domain(of, make_plan(of)) for of in (request, replace(request, exchange_dtype="fp16"))
    )
    assert narrow < wide
    assert 'sharding.exchange_dtype = "fp16"' in refusal_of(set_memory(request, wide - 1)).valid


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_smaller_chunk_alone_is_named_first_where_it_would_do(device: str):
    topology = make_topology(1, 2, device=device)
    activations = Dense({"activations": 4096 * 2**20, "program": 2**28})
    wide = make_request(make_tables([100_000] * 4, 64), topology, global_size=2**14, chunk_size=4096, dense=activations)
    most = max(count_bytes_by_memory_domain(wide, make_plan(wide)))
    request = set_memory(wide, most - 5 * 2**29 * topology.ranks_per_memory_domain)
    error = refusal_of(request)
    # Half is not enough.
    assert settings_of(error.valid[0]) == {"batch.chunk_size": 1024}
    assert_adds_up(error)
    assert_all_do(request, error)


def request_of_job(**batch: Any) -> PlanRequest:
    job = JobConfig.model_validate({"data": {"format": "synthetic"}, "batch": {"global_size": 16_384, **batch}})
    speeds = Speeds(one_copy=1e10, all_copies=1.6e10, loopback=2e9, flops=1e11, flops_bf16=4e11)
    here = MachineResources(speeds, num_cores=2, memory_bytes=2**34, has_operators=True)
    return make_plan_request(resolve(job), make_tables([1000] * 20, 64), 13, here)


def test_a_job_with_the_chunk_that_is_named_has_a_plan():
    """What a proposal takes for its activations is what a job with such a document asks for."""
    wide = request_of_job(chunk_size=8192)
    (needed,) = set(count_bytes_by_memory_domain(wide, make_plan(wide)))
    saved = wide.dense.memory_bytes["activations"] // 2 * wide.topology.ranks_per_memory_domain
    error = refusal_of(set_memory(wide, needed - saved + 2**20))
    assert settings_of(error.valid[0]) == {"batch.chunk_size": 4096}
    asked = request_of_job(chunk_size=4096)
    assert with_chunk(wide, 4096) == asked
    make_plan(set_memory(asked, needed - saved + 2**20))


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_a_table_that_may_be_split_is_told_whole_and_in_its_smallest_parts(optimizer: str):
    tables = make_tables([8_000_000] * 3, 128)
    topology = make_topology(2, 4, device="cuda", memory_bytes=10**9)
    error = refusal_of(make_request(tables, topology, optimizer=optimizer))
    whole, part = ("4.1 GB", "512 MB") if optimizer == "sgd" else ("4.13 GB", "516 MB")
    assert f"it may be split: {whole} as a whole, {part} per rank in 8 parts" in error.message
    assert_adds_up(error)


@pytest.mark.parametrize(("plan", "rules"), [("auto", (Rule("small_*", "row_wise"),)), ("row_wise", ())])
@pytest.mark.slow
def test_a_rule_whose_buffers_take_the_most_is_named_and_no_innocent_table(plan: str, rules: tuple[Rule, ...]):
    small = tuple(Table(f"small_{number}", 1000, 128) for number in range(200))
    tables = (Table("large", 10_000_000, 128), *small) if rules else small
    topology = make_topology(4, 8, device="cuda", memory_bytes=20 * 10**9)
    request = make_request(tables, topology, plan=plan, rules=rules, global_size=2**17, chunk_size=2**12)
    error = refusal_of(request)
    who = "the rule 'small_*', row_wise, needs " if rules else "the plan row_wise needs "
    assert error.message.startswith(who)
    assert "for buffers of its tables (200, in up to 32 parts each)" in error.message
    assert error.table == "small_0"
    assert_adds_up(error)
    assert_all_do(request, error)


def test_a_small_table_is_not_blamed_for_what_the_others_take():
    wide = request_of_job(chunk_size=8192)
    error = refusal_of(set_memory(wide, max(count_bytes_by_memory_domain(wide, make_plan(wide))) // 2))
    assert error.message.startswith("the 20 tables do not fit together: the fullest node needs ")
    assert re.search(
        r"[\d.]+ MiB program, [\d.]+ MiB activations, |GiB program, [\d.]+ GiB activations, ", error.message
    )
    assert_adds_up(error)


def test_a_rule_that_costs_nothing_is_not_blamed():
    """In one memory gradients take as much whatever the type."""
    tables = make_tables([10] * 8, 64)
    request = make_request(tables, make_topology(1, 2), global_size=2**20, plan="row_wise", transport="memory")
    (needed,) = count_bytes_by_memory_domain(request, make_plan(request))
    error = refusal_of(set_memory(request, needed // 2))
    assert error.message.startswith("table t")
    assert " GiB gradients of pooled embeddings" in error.message
    assert_adds_up(error)


def make_gpu_request(host_bytes: int, min_cache_share: float) -> PlanRequest:
    """Return the request for two tables of 256 MB in a GPU that has room for less than both."""
    topology = make_topology(1, 1, device="cuda", memory_bytes=480 * 10**6)
    return make_request(
        make_tables([1_000_000] * 2, 64),
        replace(topology, host_memory_bytes=host_bytes),
        transport="torchrec",
        min_cache_share=min_cache_share,
        dense=Dense(host_memory_bytes=10**6),
    )


@pytest.mark.parametrize("min_cache_share", [0.2, 1.0])
def test_memory_that_the_host_lacks_for_cached_tables_is_told_and_proposed(min_cache_share: float):
    request = make_gpu_request(10**8, min_cache_share)
    error = refusal_of(request)
    if min_cache_share < 1:
        assert "GPUs could cache a part of tables that stay in the memory of their machine" in error.message
        assert "needs 285 MB for that and has 100 MB (resources.memory)" in error.message
    (proposal,) = (valid for valid in error.valid if valid.startswith("resources.memory"))
    assert settings_of(proposal)["resources.memory"] == "285MB"
    assert ("sharding.min_cache_share" in proposal) == (min_cache_share == 1)
    assert_all_do(request, error)


def test_caches_are_proposed_where_the_job_forbids_them():
    request = make_gpu_request(10**9, 1.0)
    error = refusal_of(request)
    assert {"sharding.min_cache_share": 0.2} in [settings_of(valid) for valid in error.valid]
    assert_adds_up(error)
    assert_all_do(request, error)


def test_a_table_that_is_too_large_for_its_cache_too_is_told_with_it():
    request = make_gpu_request(10**12, 0.2)
    error = refusal_of(replace(request, tables=(Table("large", 20_000_000, 64),), optimizer="sgd"))
    # 0.2 x 20,000,000 rows of 256 bytes and 16 more, and 4 for each of all rows.
    assert "table large (5.12 GB, 1.17 GB with 20 % of it cached, whole on one rank)" in error.message
    assert_all_do(request, error)


def test_rows_of_int8_are_named_where_they_make_tables_small_enough():
    request = make_request(
        make_tables([1_000_000] * 16, 64), make_topology(1, 2, memory_bytes=2 * 2**30), may_be_int8=True
    )
    error = refusal_of(request)
    assert 'sharding.table_dtype = "int8" (rows of 8 bits a number, rounded at random)' in error.valid
    assert_all_do(request, error)
    # 16 million rows of 64 + 8 + 4 bytes are 1.13 GiB.
    smaller = replace(request, topology=replace(request.topology, memory_bytes=2**30))
    assert not any("table_dtype" in other for other in refusal_of(smaller).valid)


def test_tables_in_files_are_named_where_memory_is_too_small_for_all_of_them():
    request = make_request(
        make_tables([1_000_000] * 16, 64),
        make_topology(1, 2, memory_bytes=2**30),
        transport="memory",
        may_lie_in_files=True,
    )
    error = refusal_of(request)
    proposal = next(setting for setting in error.valid if "resident_memory" in setting)
    # 16 tables of a million rows with 65 numbers of 4 bytes each.
    assert proposal.startswith('sharding.resident_memory = "512MiB" (tables in files: 4.16 GB of disk')
    assert_all_do(request, error)
    assert not any("resident_memory" in other for other in refusal_of(replace(request, may_lie_in_files=False)).valid)
