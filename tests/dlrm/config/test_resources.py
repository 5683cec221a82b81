"""Numbers of machines: one, or a range of which an attempt takes what is there."""

from typing import Any

import pytest

from dlrm.config import (
    ConfigError,
    DataFacts,
    ResolvedJob,
    parse_job,
    resolve,
    resolve_for_nodes,
    resolve_with_rows,
)
from dlrm.launch.first_node import list_allowed_numbers
from dlrm.launch.nodes.rendezvous import choose_members


def resolve_nodes(nodes: Any, **resources: Any) -> ResolvedJob:
    document = {
        "data": {"format": "synthetic"},
        "batch": {"global_size": 1200},
        "resources": {"nodes": nodes, "workers_per_node": 2, **resources},
    }
    return resolve(parse_job(document))


def test_a_number_is_a_range_of_one():
    resources = resolve_nodes(3).job.resources
    assert (resources.num_nodes, list(resources.node_range), resources.world_size) == (3, [3], 6)


def test_a_range_counts_as_its_largest_number_until_an_attempt_has_begun_with_fewer():
    resolved = resolve_nodes({"min": 2, "max": 4})
    assert (resolved.job.resources.num_nodes, resolved.share_size) == (4, 150)
    fewer = resolve_for_nodes(resolved, 2)
    assert (fewer.job.resources.num_nodes, fewer.share_size) == (2, 300)
    assert fewer.job.batch == resolved.job.batch
    assert fewer.job.run == resolved.job.run
    # What it has begun with is read back, and the range is still there for the next attempt.
    read = ResolvedJob.model_validate_json(fewer.model_dump_json())
    assert list(read.job.resources.node_range) == [2, 3, 4]
    assert resolve_for_nodes(read, 4).share_size == 150


def test_only_numbers_whose_ranks_divide_the_batch_are_allowed():
    assert list_allowed_numbers(resolve_nodes({"min": 1, "max": 10})) == [1, 2, 3, 4, 5, 6, 8, 10]


def test_only_numbers_whose_ranks_divide_every_size_of_a_batch_that_grows_are_allowed():
    document = {
        "data": {"format": "synthetic"},
        "batch": {"global_size": 600, "schedule": [{"until_fraction": 0.5, "global_size": 40}]},
        "resources": {"nodes": {"min": 1, "max": 10}, "workers_per_node": 2},
    }
    assert list_allowed_numbers(resolve(parse_job(document))) == [1, 2, 4, 5, 10]


@pytest.mark.parametrize("num_nodes", [2, 3, 4, 5, 6])
def test_a_batch_chosen_by_rows_fits_the_machines_at_hand(num_nodes: int):
    document = {"data": {"format": "synthetic"}, "resources": {"nodes": {"min": 2, "max": 6}, "workers_per_node": 2}}
    resolved = resolve(parse_job(document))
    assert resolved.asked is not None
    assert list_allowed_numbers(resolved) == [2, 3, 4, 5, 6]
    decided = resolve_with_rows(resolve_for_nodes(resolved, num_nodes), DataFacts(num_train_rows=600_000))
    allowed = list_allowed_numbers(decided)
    assert {2, num_nodes, 6} <= set(allowed)
    # The next attempt has the same batch, whatever its number is.
    assert {resolve_for_nodes(decided, number).job.batch.global_size for number in allowed} == {
        decided.job.batch.global_size
    }


def test_a_number_that_would_raise_an_open_batch_by_much_is_not_allowed():
    document = {"data": {"format": "synthetic"}, "resources": {"nodes": {"min": 10, "max": 64}, "workers_per_node": 8}}
    resolved = resolve(parse_job(document))
    assert list_allowed_numbers(resolved) == [10, 16, 20, 32, 40, 64]
    sizes = {
        resolve_with_rows(resolve_for_nodes(resolved, number), DataFacts(num_train_rows=600_000)).job.batch.global_size
        for number in list_allowed_numbers(resolved)
    }
    assert sizes == {2560}


def test_numbers_that_groups_of_moments_cannot_have_are_not_allowed():
    groups = {"estimator": "groups", "num_groups": 16}
    document = {
        "data": {"format": "synthetic"},
        "batch": {"global_size": 12288},
        "moments": groups,
        "resources": {"nodes": {"min": 2, "max": 4}, "workers_per_node": 2},
    }
    assert list_allowed_numbers(resolve(parse_job(document))) == [2, 4]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"sharding": {"tables": [{"pattern": "*", "type": "auto", "ranks": [5]}]}},
            r"sharding\.tables\.0\.ranks: with 2 machines: there is no rank 5: the job has 4 ranks",
        ),
        (
            {"moments": {"estimator": "groups", "num_groups": 8}, "resources": {"nodes": {"min": 3, "max": 4}}},
            r"moments\.num_groups: with 3 machines: 8 is not a multiple of 6 ranks \(valid: 6 or 12\)",
        ),
    ],
)
def test_what_the_fewest_machines_cannot_have_is_refused(fields: dict[str, Any], message: str):
    resources = {"nodes": {"min": 2, "max": 4}, "workers_per_node": 2, **fields.pop("resources", {})}
    document = {"data": {"format": "synthetic"}, "batch": {"global_size": 12288}, "resources": resources, **fields}
    with pytest.raises(ConfigError, match=message):
        parse_job(document)


def test_the_first_nodes_of_those_that_are_there_run_the_attempt():
    assert choose_members([0, 1, 2, 3, 4, 5, 6], [2, 4, 6]) == [0, 1, 2, 3, 4, 5]
    assert choose_members([3, 0, 5], [2, 4, 6]) == [0, 3]
    assert choose_members([0, 5], [2, 4, 6]) == [0, 5]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"min": 3, "max": 2}, "resources.nodes.min: 3 is more than max, 2 (valid: 1 to 2)"),
        ({"min": 2, "max": 4, "present": 5}, "resources.nodes.present: 5 is not within the range (valid: 2 to 4"),
        ({"max": 2000}, "resources.nodes.max: should be less than or equal to 1,024, got 2000"),
        ({"most": 2}, "resources.nodes.max: required, but missing; resources.nodes.most: unknown field"),
        ({}, "resources.nodes.max: required, but missing"),
        ({"min": "a", "max": 2}, "resources.nodes.min: should be a whole number, got 'a'"),
        (0, "resources.nodes: should be greater than or equal to 1, got 0"),
        ("two", "resources.nodes: should be a whole number, got 'two'"),
        (None, "resources.nodes: should be a whole number, got null"),
        ({"min": 7, "max": 10}, "resources.nodes: the 14 ranks of 7 machines do not divide batch.global_size"),
    ],
)
def test_a_wrong_number_is_named_with_what_would_be_valid(nodes: Any, message: str):
    with pytest.raises(ConfigError) as raised:
        resolve_nodes(nodes)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("memory", ["100MiB", 1, -1, 2**61])
def test_a_memory_out_of_range_is_told_the_range_in_units(memory: Any):
    with pytest.raises(ConfigError) as raised:
        parse_job({"data": {"format": "synthetic"}, "resources": {"memory": memory}})
    assert str(raised.value) == f'resources.memory: should be from "256MiB" to "1EiB", got {memory!r}'


def test_ranks_are_named_in_the_right_number():
    document = {
        "data": {"format": "synthetic"},
        "resources": {"workers_per_node": 1},
        "sharding": {"tables": [{"pattern": "*", "type": "table_wise", "ranks": [1]}]},
    }
    with pytest.raises(ConfigError, match="there is no rank 1: the job has 1 rank"):
        parse_job(document)
