"""Embedding dimensions of single tables, in documents."""

from typing import Any

import pytest
from pydantic import ValidationError

from dlrm.config import ConfigError, ModelConfig, parse_document
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


@pytest.mark.parametrize("dim", [128, 6, 0, "wide"])
def test_a_dimension_that_no_table_can_have_is_refused_by_name(dim: Any):
    with pytest.raises(ValidationError, match=r"table_dims"):
        make_model({"a": dim})


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
    for rules, name in (({"a": 16}, "'a'"), ({"*": 8}, "'b'"), ({"b": "auto"}, "'a'")):
        (fault,) = find_dim_faults(rules, old, 16)
        assert name in fault.message
    assert not find_dim_faults({"*": "auto", "a": 16}, None, 16)
    (fault,) = find_dim_faults({"a": 8}, None, 16)
    assert fault.field == "model.table_dims.a"
