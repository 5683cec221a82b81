"""Embedding dimensions of single tables, in documents."""

from typing import Any

import pytest

from dlrm.config import ConfigError, DataFacts, ModelConfig, parse_document, resolve, resolve_with_rows
from dlrm.config.decide import keep_decisions
from dlrm.config.identity import list_differences, make_identity
from dlrm.config.job import JobSpec
from dlrm.config.table_dims import compute_auto_dim, find_dim_faults


def make_model(dims: dict[str, Any]) -> ModelConfig:
    return ModelConfig(embedding_dim=64, table_dims=dims)


@pytest.mark.parametrize(
    ("num_rows", "expected"), [(1, 64), (1_000, 64), (10_000, 32), (100_000, 16), (10**6, 8), (10**7, 4), (10**9, 4)]
)
def test_auto_halves_the_dimension_with_ten_times_the_rows(num_rows: int, expected: int):
    assert compute_auto_dim(64, num_rows) == expected


def test_a_name_takes_precedence_and_then_the_first_pattern():
    model = make_model({"user_*": 8, "*": "auto", "user_id": 16})
    assert [model.choose_table_dim(name, 10**6) for name in ("user_id", "user_age", "item")] == [16, 8, 8]
    assert make_model({"a": 8}).choose_table_dim("b", 10**6) == 64


def test_stated_dimensions_do_not_change_with_the_rows():
    stated = make_model({"*": "auto"}).with_table_dims({"a": 10, "b": 10**6})
    assert stated.table_dims == {"a": 64, "b": 8}
    assert stated.choose_table_dim("b", 10**8) == 8
    wide = make_model({"*": "auto"}).with_table_dims({"a": 10, "b": 20})
    assert wide.choose_table_dim("b", 10**8) == 64


@pytest.mark.parametrize("dim", [128, 6, 0, "wide", "8", 8.0, True, None])
def test_a_dimension_that_no_table_can_have_is_refused_by_name(dim: Any):
    document = {"data": {"format": "synthetic"}, "model": {"embedding_dim": 64, "table_dims": {"a": dim}}}
    with pytest.raises(ConfigError, match=r"model.table_dims.a: .*\"auto\""):
        parse_document(JobSpec, document)


def test_a_rule_that_no_column_matches_is_refused():
    schema = {"dense": [{"name": "x"}], "categorical": [{"name": "user"}, {"name": "item"}]}
    document = {
        "data": {"format": "parquet", "train": ["rows.parquet"], "schema": schema},
        "model": {"table_dims": {"User": 8}},
    }
    with pytest.raises(ConfigError, match=r"model.table_dims: 'User' matches no table.*did you mean user"):
        parse_document(JobSpec, document)


def test_a_model_to_start_from_keeps_its_dimensions():
    old = {"a": 8, "b": 16}
    for fitting in (None, {"*": "auto"}, {"a": 8}, {"a*": 8, "b": 16}):
        assert not find_dim_faults(fitting, old, 16)
    faults = (({"a": 16}, "a gets 16, not 8"), ({"*": 8}, "b gets 8, not 16"), ({"b": "auto"}, "a gets 16, not 8"))
    for rules, difference in faults:
        (fault,) = find_dim_faults(rules, old, 16)
        assert difference in fault.message
    for wide in (None, {"*": 16}, {"a": 16, "b": 16}):
        assert not find_dim_faults({"*": "auto", "a": 16}, wide, 16)
        (fault,) = find_dim_faults({"a": 8}, wide, 16)
        assert fault.field == "model.table_dims.a"


@pytest.mark.parametrize("rules", [None, {"*": "auto"}])
@pytest.mark.parametrize("old", [{"C1": 8, "C2": 16}, None])
def test_a_whole_document_waits_for_the_model_that_it_starts_from(rules: Any, old: dict[str, int] | None):
    sizes = {"architecture": "dlrm", "embedding_dim": 16, "bottom_mlp": [16]}
    run = {"epochs": 1, "validation_fraction": 0, "blend": "none", "patience": None}
    document = {
        "data": {"format": "synthetic"},
        "model": {**sizes, "table_dims": rules},
        "batch": {"global_size": 1024},
        "dense_optimizer": {"learning_rate": 0.1},
        "table_optimizer": {"learning_rate": 0.1},
        "run": {"warm_start": {"from": "earlier"}, **run},
    }
    asked = parse_document(JobSpec, document)
    resolved = resolve(asked)
    assert resolved.asked is not None
    source = ModelConfig.model_validate({**sizes, "table_dims": old})
    decided = resolve_with_rows(resolved, DataFacts(num_train_rows=1000, source=source))
    assert decided.asked is None
    assert decided.job.model.table_dims == (old or {"*": 16})
    assert resolve(decided.job).asked is None
    # A run of before these dimensions goes on, also without the model that it has started from.
    earlier = decided.job.model_copy(update={"model": source})
    assert resolve(earlier).asked is None
    kept = keep_decisions(asked, earlier)
    assert kept.model.table_dims == (old or {"*": 16})
    again = resolve(kept)
    assert again.asked is None
    assert not list_differences(make_identity(again.job), make_identity(earlier))


def test_rules_of_all_tables_hold_where_there_are_none():
    schema = {"dense": [{"name": "x"}], "categorical": []}
    data = {"format": "parquet", "train": ["rows.parquet"], "schema": schema}
    parse_document(JobSpec, {"data": data, "model": {"table_dims": {"*": "auto"}}})
