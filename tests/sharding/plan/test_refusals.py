"""A request without a plan is told why, and what would do."""

import re
from dataclasses import replace

import pytest

from sharding.plan import PlanError, PlanRequest, Rule, plan_of
from sharding.plan.check import memory_of_pools
from sharding.plan.plan import COLUMN_TYPES
from tests.sharding.plan.made_requests import request_of, tables_of, topology_of

TOO_MUCH = request_of(
    tables_of([3_000_000] * 8, 64), topology_of(1, 4, device="cuda", memory_bytes=10**9), optimizer="adagrad"
)
"""12.3 GB with the optimizer's state, for 4 GB."""


def refusal_of(request: PlanRequest) -> PlanError:
    with pytest.raises(PlanError) as caught:
        plan_of(request)
    return caught.value


def test_too_little_memory_names_the_table_the_bytes_and_what_would_fit():
    error = refusal_of(TOO_MUCH)
    assert error.table in {table.name for table in TOO_MUCH.tables}
    assert error.short_bytes is not None
    assert error.short_bytes > 2 * 10**9
    enough = replace(TOO_MUCH.topology, memory_bytes=10**9 + error.short_bytes)
    plan_of(replace(TOO_MUCH, topology=enough))
    assert f"{error.short_bytes:,} bytes" in error.message
    assert any("of memory a GPU" in valid for valid in error.valid)


def test_the_number_of_ranks_that_is_named_does():
    named = next(valid for valid in refusal_of(TOO_MUCH).valid if "ranks" in valid)
    found = re.match(r"(\d+) ranks \((\d+) nodes x 4\)", named)
    assert found is not None, named
    plan_of(replace(TOO_MUCH, topology=replace(TOO_MUCH.topology, num_nodes=int(found[2]))))


def test_another_optimizer_is_named_where_it_would_do():
    tight = replace(TOO_MUCH, topology=replace(TOO_MUCH.topology, memory_bytes=2 * 10**9))
    assert any(valid.startswith("table_optimizer rowwise_adagrad") for valid in refusal_of(tight).valid)
    plan_of(replace(tight, optimizer="rowwise_adagrad"))


def test_an_automatic_plan_is_named_where_a_fixed_one_has_no_room():
    tables = tables_of([6_000_000, 10], 64)
    request = request_of(
        tables, topology_of(1, 4, device="cuda", memory_bytes=10**9), optimizer="sgd", plan="table_wise"
    )
    error = refusal_of(request)
    assert (error.table, 'plan "auto" for all tables' in error.valid) == ("t0", True)
    plan_of(replace(request, plan="auto"))


def test_half_the_number_format_is_named_where_it_keeps_less():
    """On GPUs what is looked up is fp32 whatever travels."""
    request = request_of(tables_of([10] * 8, 64), topology_of(2, 2), global_size=2**20, plan="table_wise")
    for device, would_do in (("cpu", True), ("cuda", False)):
        on_device = replace(request, topology=replace(request.topology, device=device))
        (wide, *_), (narrow, *_) = (
            memory_of_pools(of, plan_of(of)) for of in (on_device, replace(on_device, exchange_dtype="fp16"))
        )
        assert (narrow < wide) == would_do
        tight = replace(on_device, topology=replace(on_device.topology, memory_bytes=wide - 1))
        assert ("exchange_dtype fp16" in refusal_of(tight).valid) == would_do


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
