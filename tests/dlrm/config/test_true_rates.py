"""Settings of true rates: what they refuse, and what they leave as it was."""

from typing import Any

import pytest

from dlrm.config import ConfigError, DataFacts, JobConfig, make_identity, parse_job
from dlrm.config.decide import decide
from dlrm.data.groups import find_grouping
from dlrm.data.open import open_data

CSV = {
    "train": ["rows.csv"],
    "format": "csv",
    "schema": {"categorical": [{"name": "user"}, {"name": "tags", "multi_hot": True}]},
}
TWO = {"categorical": [{"name": "user"}, {"name": "item"}]}
SHARED = {"num_remainders": 9, "columns": {"user": {"num_remainders": False}}}
SYNTHETIC = {"format": "synthetic", "synthetic": {"num_rows": 100, "num_ids": 20}}


@pytest.mark.parametrize(
    ("data", "run", "field", "valid"),
    [
        ({"negative_sampling": 0.0}, {}, "data.negative_sampling", "greater than 0"),
        ({"negative_sampling": 1.5}, {}, "data.negative_sampling", "less than or equal to 1"),
        ({}, {"recalibrate": "platt", "validation_fraction": 0}, "run.validation_fraction", "above 0 to 0.5"),
        ({}, {"recalibrate": "isotone"}, "run.recalibrate", "platt"),
        ({}, {"recall_at": [1]}, "run.recall_at", "a run.group_by"),
        ({}, {"group_by": "user", "recall_at": []}, "run.recall_at", "at least 1"),
        ({}, {"group_by": "item"}, "run.group_by", "null or user"),
        ({}, {"group_by": "tags"}, "run.group_by", "null or user"),
        ({"vocabulary": SHARED, "schema": TWO}, {"group_by": "item"}, "run.group_by", "null or user"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_its_field(
    data: dict[str, Any], run: dict[str, Any], field: str, valid: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_job({"data": {**CSV, **data}, "run": run})
    assert [error.field for error in caught.value.errors] == [field]
    assert valid in str(caught.value)


def test_rows_without_the_feature_are_refused_with_the_features_that_they_have() -> None:
    dataset = open_data(JobConfig.model_validate({"data": SYNTHETIC}).data, None, None)
    with pytest.raises(ValueError, match=r"run.group_by: 'user' is no .* \(valid: null or C1 or C2"):
        find_grouping("user", None, dataset.schema, None)


def test_groups_by_a_column_of_several_ids_a_value_are_refused_with_the_setting_that_gives_them() -> None:
    for vocabulary, name in (
        ({"num_remainders": 9}, "num_remainders"),
        ({"hash_size": 9, "num_hashes": 2}, "num_hashes"),
    ):
        with pytest.raises(
            ConfigError, match=rf"values of 'user' have several ids each, by data.vocabulary.{name} \(valid"
        ):
            parse_job({"data": {**CSV, "vocabulary": vocabulary}, "run": {"group_by": "user"}})


@pytest.mark.parametrize("run", [{}, {"epochs": 1.0}])
@pytest.mark.parametrize("facts", [None, DataFacts(num_train_rows=1_000_000)])
def test_a_recalibration_has_validation_rows_unless_they_are_refused(
    run: dict[str, Any], facts: DataFacts | None
) -> None:
    job = parse_job({"data": CSV, "run": {**run, "recalibrate": "isotonic"}})
    assert decide(job, facts)[0].run.validation_fraction == (0.1 if facts is None else 0.05)


def test_figures_may_change_between_attempts_and_the_share_of_negatives_may_not() -> None:
    plain, measured, sampled = (
        make_identity(JobConfig.model_validate({"data": {**SYNTHETIC, **data}, "run": run}))
        for data, run in (
            ({}, {"validation_fraction": 0.1}),
            ({}, {"validation_fraction": 0.1, "group_by": "C1", "recall_at": [1], "recalibrate": "platt"}),
            ({"negative_sampling": 0.5}, {"validation_fraction": 0.1}),
        )
    )
    assert plain == measured
    assert plain != sampled
