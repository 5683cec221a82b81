"""Columns of raw rows: features, their names, and the uses that a column may have."""

import pytest
from pydantic import ValidationError

from dlrm.config import DataConfig, SchemaConfig, translate_errors


def make(**fields: object) -> SchemaConfig:
    return SchemaConfig.model_validate(fields)


def fail(**fields: object) -> str:
    with pytest.raises(ValidationError) as caught:
        make(**fields)
    return "; ".join(str(error) for error in translate_errors(caught.value, SchemaConfig))


def test_a_column_may_be_a_number_ids_ranges_and_parts_of_a_time() -> None:
    schema = make(
        label="y",
        weight="w",
        dense=[{"name": "age"}],
        categorical=[
            {"name": "age"},
            {"name": "age", "bucketize": 16},
            {"name": "ts", "time_part": "hour"},
            {"name": "ts", "time_part": "weekday"},
        ],
    )
    assert [column.feature for column in schema.categorical] == ["age", "age:buckets", "ts:hour", "ts:weekday"]
    assert schema.names == ["y", "age", "ts", "w"]
    assert schema.input_names == ["age", "ts"]


def test_a_count_expands_columns_of_every_kind() -> None:
    schema = make(categorical=[{"name": "n{}", "count": 2, "bucketize": 4}, {"name": "n{}", "count": 2}])
    assert [column.feature for column in schema.categorical] == ["n0:buckets", "n1:buckets", "n0", "n1"]


@pytest.mark.parametrize(
    ("categorical", "name"),
    [
        ([{"name": "a"}, {"name": "a", "type": "integer"}], "a"),
        ([{"name": "a", "bucketize": 4}, {"name": "a", "bucketize": 8}], "a:buckets"),
        ([{"name": "a", "bucketize": 4}, {"name": "a:buckets"}], "a:buckets"),
        ([{"name": "a", "time_part": "day"}, {"name": "a", "time_part": "day"}], "a:day"),
    ],
)
def test_the_same_feature_twice_is_an_error_that_names_it(categorical: list[object], name: str) -> None:
    assert f"categorical: has the feature '{name}' twice" in fail(categorical=categorical)


def test_a_dense_feature_twice_is_an_error() -> None:
    assert "dense: has the feature 'a' twice" in fail(dense=[{"name": "a"}, {"name": "a", "transform": "log"}])


@pytest.mark.parametrize("column", [{"name": "y"}, {"name": "y", "bucketize": 4}, {"name": "w", "time_part": "day"}])
def test_the_label_and_the_weight_are_no_features(column: object) -> None:
    assert f"names '{column['name']}' twice" in fail(label="y", weight="w", categorical=[column])  # type: ignore[index]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"bucketize": 8, "multi_hot": True}, "bucketize: not together with multi_hot"),
        ({"bucketize": 8, "time_part": "hour"}, "time_part: not together with bucketize"),
        ({"bucketize": 8, "type": "integer"}, "type: 'integer' is the type of ids, but bucketize is set"),
        ({"time_part": "hour", "type": "integer"}, "type: 'integer' is the type of ids, but time_part is set"),
        ({"bucketize": 1}, "bucketize: should be greater than or equal to 2"),
        ({"bucketize": 4097}, "bucketize: should be less than or equal to 4,096"),
        ({"time_part": "minute"}, "time_part: 'minute' is not one of the choices"),
        ({"decimal_mark": ","}, "decimal_mark: is set without bucketize"),
        ({"time_format": "%Y"}, "time_format: is set without time_part"),
        ({"time_part": "hour", "time_format": "%Y-%m-%d"}, "time_format: '%Y-%m-%d' does not give the hour (valid: a"),
        ({"time_part": "day", "time_format": "%Y-%m-%d %I"}, "time_format: has the hours of half a day, %I, without"),
        ({"time_part": "day", "time_format": "%d %Q"}, "time_format: '%Q' is not a directive (valid: directives of"),
        (
            {"time_part": "day", "time_format": "%d %b %m"},
            "time_format: has %b and %m (valid: each part of a time once",
        ),
        ({"time_part": "day", "time_format": "%d %"}, "time_format: '%' is not a directive"),
    ],
)
def test_uses_that_exclude_each_other_are_errors(fields: dict[str, object], text: str) -> None:
    assert f"categorical.0.{text}" in fail(categorical=[{"name": "a", **fields}])


def test_a_column_of_lists_has_one_use() -> None:
    categorical = [{"name": "tags", "multi_hot": True}, {"name": "tags", "bucketize": 4}]
    assert "'tags' holds lists and is used twice" in fail(categorical=categorical)


def test_vocabulary_settings_are_for_columns_of_ids_alone() -> None:
    document = {
        "format": "csv",
        "train": ["a.csv"],
        "schema": {"categorical": [{"name": "age", "bucketize": 4}, {"name": "site"}]},
        "vocabulary": {"columns": {"age:buckets": {"hash_size": 100}}},
    }
    with pytest.raises(ValidationError, match="'age:buckets' matches no categorical column of ids"):
        DataConfig.model_validate(document)
