"""The section of the job document for the average of the weights."""

from typing import Any

import pytest

from dlrm.config import AveragingConfig, ConfigError, JobConfig, list_differences, make_identity, parse_job

DATA: dict[str, Any] = {"data": {"format": "synthetic"}}


@pytest.mark.parametrize("value", [None, False])
def test_it_is_off_unless_a_job_asks_for_it(value: Any):
    assert parse_job(DATA).averaging is None
    assert parse_job({**DATA, "averaging": value}).averaging is None
    assert parse_job({**DATA, "averaging": {}}).averaging == AveragingConfig(half_life_fraction=0.05)


@pytest.mark.parametrize(
    ("section", "field", "hint"),
    [
        ({"half_life_fraction": 0.0}, "averaging.half_life_fraction", "greater than 0"),
        ({"half_life_fraction": 1.5}, "averaging.half_life_fraction", "less than or equal to 1"),
        ({"decay": 0.999}, "averaging.decay", "half_life_fraction"),
    ],
)
def test_a_bad_section_names_the_field_and_what_would_be_valid(section: dict[str, Any], field: str, hint: str):
    with pytest.raises(ConfigError) as caught:
        parse_job({**DATA, "averaging": section})
    (error,) = caught.value.errors
    assert error.field == field
    assert hint in str(error)


def test_ranks_on_gpus_are_refused_by_the_name_of_the_section():
    with pytest.raises(ConfigError) as caught:
        parse_job({**DATA, "averaging": {}, "resources": {"gpus_per_worker": 1}})
    (error,) = caught.value.errors
    assert error.field == "averaging"
    assert "null, or resources.gpus_per_worker 0" in str(error)


def test_schedule_free_averages_alone():
    with pytest.raises(ConfigError) as caught:
        parse_job({**DATA, "averaging": {}, "dense_optimizer": {"name": "schedule_free"}})
    (error,) = caught.value.errors
    assert error.field == "averaging"
    assert "null, or another dense_optimizer.name" in str(error)


def test_a_run_with_an_average_is_another_run():
    with_average, without = (
        make_identity(JobConfig.model_validate({**DATA, "averaging": section})) for section in ({}, None)
    )
    assert list_differences(with_average, without) == ['averaging is {"half_life_fraction": 0.05}, but was null']
    earlier = {field: value for field, value in without.items() if field != "averaging"}
    assert list_differences(without, earlier) == []
