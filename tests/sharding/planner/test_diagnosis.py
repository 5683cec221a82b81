"""The diagnosis of a request without a plan: missing memory, the cause, and requests that work."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding.planner import Dense, Diagnosis, NoPlanError, PlanError, PlanRequest, Rule, Table, make_plan
from sharding.planner.check import count_bytes_by_memory_domain, find_faults
from sharding.planner.types import COLUMN_TYPES, SHARDING_TYPES
from tests.sharding.planner.plan_requests import (
    REQUEST_WITHOUT_ROOM,
    draw_requests,
    make_request,
    make_tables,
    make_topology,
    set_memory,
    tighten,
)


def catch_error(request: PlanRequest) -> PlanError:
    with pytest.raises(PlanError) as caught:
        make_plan(request)
    return caught.value


def get_diagnosis(request: PlanRequest) -> Diagnosis:
    error = catch_error(request)
    assert isinstance(error, NoPlanError)
    return error.diagnosis


def assert_all_work(diagnosis: Diagnosis) -> None:
    for other in diagnosis.alternatives:
        assert other != diagnosis.request
        assert find_faults(other, make_plan(other)) == []


def get_least_memory(diagnosis: Diagnosis) -> int:
    assert diagnosis.least_memory_bytes is not None
    return diagnosis.least_memory_bytes


@given(drawn=draw_requests(), share=st.sampled_from([64, 4096]), part=st.floats(0.1, 0.9))
def test_every_alternative_has_a_plan(drawn: PlanRequest, share: int, part: float):
    tight = tighten(drawn, share, part)
    try:
        make_plan(tight)
    except NoPlanError as error:
        diagnosis = error.diagnosis
    else:
        return
    assert diagnosis.memory_use is not None
    assert diagnosis.memory_use.num_bytes <= get_least_memory(diagnosis)
    json.dumps(diagnosis.as_dict(), allow_nan=False)
    assert_all_work(diagnosis)


def test_the_error_has_a_neutral_message_and_no_words_of_a_job():
    error = catch_error(REQUEST_WITHOUT_ROOM)
    assert isinstance(error, NoPlanError)
    least = get_least_memory(error.diagnosis)
    expected = f"the tables do not fit into memory: {least:,} bytes are needed and 1,000,000,000 available"
    assert error.message == expected
    assert (error.short_bytes, error.field, list(error.valid)) == (least - 10**9, "", [])
    assert error.table in {table.name for table in REQUEST_WITHOUT_ROOM.tables}


def test_memory_is_tried_as_it_is_rounded():
    with pytest.raises(NoPlanError) as caught:
        make_plan(REQUEST_WITHOUT_ROOM, round_memory=lambda num_bytes: -(-num_bytes // 10**8) * 10**8)
    diagnosis = caught.value.diagnosis
    assert get_least_memory(diagnosis) % 10**8 == 0
    assert_all_work(diagnosis)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", SHARDING_TYPES)
def test_a_fixed_plan_without_room_has_its_least_memory(kind: str, device: str):
    topology = make_topology(2, 4, device=device, memory_bytes=3 * 10**8)
    tables = make_tables([6_000_000, *[1_000_000] * 5], 64)
    request = make_request(tables, topology, plan=kind, optimizer="sgd", dense=Dense({"program": 2**26}))
    diagnosis = get_diagnosis(request)
    enough = set_memory(request, get_least_memory(diagnosis))
    assert diagnosis.alternatives[0] == enough
    assert_all_work(diagnosis)
    # It is not much more than what is needed.
    catch_error(set_memory(request, int(0.97 * enough.topology.memory_bytes)))


def test_copies_in_the_memory_of_one_machine_count_for_every_rank():
    topology = make_topology(1, 2, memory_bytes=10**9)
    request = make_request(make_tables([3_000_000] * 8, 64), topology, plan="data_parallel", transport="memory")
    diagnosis = get_diagnosis(request)
    assert diagnosis.option.is_replicated
    # Weights and the sums of their gradients, of two ranks.
    assert get_least_memory(diagnosis) > 8 * 3_000_000 * 64 * 4 * 2 * 2
    assert_all_work(diagnosis)


def test_tables_that_are_all_to_be_on_one_rank_need_room_for_all_there():
    topology = make_topology(1, 8, device="cuda", memory_bytes=80 * 10**9)
    request = make_request(make_tables([80_000_000] * 10, 128), topology, rules=(Rule("*", "table_wise", (0,)),))
    diagnosis = get_diagnosis(request)
    assert get_least_memory(diagnosis) > 10 * 80_000_000 * 128 * 4
    assert_all_work(diagnosis)


def test_a_little_too_little_is_not_diagnosed_as_much():
    request = make_request(make_tables([3_000_000] * 8, 64), make_topology(1, 1, memory_bytes=2**40), plan="table_wise")
    (needed,) = count_bytes_by_memory_domain(request, make_plan(request))
    short = get_diagnosis(set_memory(request, needed - 1)).short_bytes
    assert short is not None
    assert 1 <= short <= needed / 100


def test_where_no_number_of_nodes_divides_the_batch_there_is_no_such_alternative():
    request = replace(REQUEST_WITHOUT_ROOM, global_size=4 * 1009, chunk_size=512)
    assert {other.topology.num_nodes for other in get_diagnosis(request).alternatives} == {1}


def test_no_chunk_is_tried_that_is_too_small_to_be_fast():
    activations = Dense({"activations": 512 * 2**20})
    request = make_request(make_tables([1000]), make_topology(1, 1, memory_bytes=2**27), dense=activations)
    diagnosis = get_diagnosis(request)
    assert not any(
        other.chunk_size < request.chunk_size and other.global_size == request.global_size
        for other in diagnosis.alternatives
    )
    # 128 samples and the table take no more than this.
    small = replace(request, chunk_size=128, dense=Dense({"activations": 128 * 2**20}))
    make_plan(set_memory(small, 2**27 + 2**24))
    assert_all_work(diagnosis)


def test_a_chunk_beyond_the_share_of_a_rank_is_halved_from_the_share():
    activations = Dense({"activations": 1024 * 2**20})
    whole = make_request(
        make_tables([1000]), make_topology(1, 1, memory_bytes=3 * 2**28), global_size=1024, dense=activations
    )
    first = get_diagnosis(replace(whole, chunk_size=2**20)).alternatives[0]
    assert (first.chunk_size, first.dense.memory_bytes["activations"]) == (512, 512 * 2**20)


@pytest.mark.parametrize(("plan", "rules"), [("auto", (Rule("small_*", "row_wise"),)), ("row_wise", ())])
def test_a_rule_whose_buffers_take_the_most_is_blamed(plan: str, rules: tuple[Rule, ...]):
    small = tuple(Table(f"small_{number}", 1000, 128) for number in range(60))
    tables = (Table("large", 10_000_000, 128), *small) if rules else small
    topology = make_topology(4, 8, device="cuda", memory_bytes=6 * 10**9)
    request = make_request(tables, topology, plan=plan, rules=rules, global_size=2**17, chunk_size=2**12)
    error = catch_error(request)
    assert isinstance(error, NoPlanError)
    blamed = error.diagnosis.blamed_rule
    assert blamed is not None
    assert (blamed.rule, blamed.sharding_type) == (0 if rules else None, "row_wise")
    assert (len(blamed.tables), blamed.max_shards, error.table) == (60, 32, "small_0")


def test_a_table_smaller_than_the_missing_memory_is_not_at_fault():
    alone = make_request(make_tables([8_000_000], 64), make_topology(1, 1, device="cuda", memory_bytes=10**9))
    assert get_diagnosis(alone).is_option_at_fault
    assert not get_diagnosis(replace(alone, tables=make_tables([1_000_000] * 20, 64))).is_option_at_fault


def test_the_option_without_room_has_the_smallest_shards_that_its_table_may_have():
    topology = make_topology(2, 4, device="cuda", memory_bytes=10**9)
    option = get_diagnosis(make_request(make_tables([8_000_000] * 3, 128), topology, optimizer="sgd")).option
    assert (option.is_automatic, len(option.blocks)) == (True, 8)


@pytest.mark.parametrize("kind", COLUMN_TYPES)
def test_split_rows_are_refused_to_an_optimizer_of_whole_rows(kind: str):
    rules = (Rule("t1", kind),)  # pyright: ignore[reportArgumentType]
    error = catch_error(make_request(make_tables([50, 60]), make_topology(1, 2), rules=rules))
    assert (error.table, error.field) == ("t1", "rules.0.type")
    assert "row_wise" in error.valid[0]
    assert "adagrad or sgd" in error.valid[1]


@pytest.mark.parametrize(
    ("rules", "field", "words"),
    [
        ((Rule("x*", "row_wise"),), "rules.0.pattern", "'x*' claims no table"),
        ((Rule("*", "row_wise"), Rule("t0", "auto")), "rules.1.pattern", "earlier rules claim the matches"),
        ((Rule("*", "row_wise", (0, 4)),), "rules.0.ranks", "there is no rank 4"),
        ((Rule("*", "row_wise", (1, 1)),), "rules.0.ranks", "names a rank twice"),
        ((Rule("*", "row_wise", ()),), "rules.0.ranks", "names no rank"),
        ((Rule("*", "data_parallel", (0, 1)),), "rules.0.ranks", "on every rank"),
        ((Rule("*", "table_row_wise", (1, 2)),), "rules.0.ranks", "on one node"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_named(rules: tuple[Rule, ...], field: str, words: str):
    error = catch_error(make_request(make_tables([50, 60]), make_topology(2, 2), rules=rules))
    assert error.field == field
    assert words in error.message
    assert error.valid
