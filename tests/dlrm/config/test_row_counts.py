"""Settings of the tables that depend on the occurrences of a row, and what they are refused with."""

from typing import Any

import pytest

from dlrm.config import ConfigError, JobConfig, list_differences, make_identity, parse_job
from dlrm.config.optimizers import CowClipConfig

DATA: dict[str, Any] = {"data": {"format": "synthetic"}}


@pytest.mark.parametrize("value", [None, False])
def test_it_is_off_unless_a_job_asks_for_it(value: Any):
    assert parse_job(DATA).table_optimizer.cowclip is None
    assert parse_job({**DATA, "table_optimizer": {"cowclip": value}}).table_optimizer.cowclip is None
    found = parse_job({**DATA, "table_optimizer": {"cowclip": {}}}).table_optimizer.cowclip
    assert found == CowClipConfig(r=1.0, zeta=1e-5)


@pytest.mark.parametrize(
    ("document", "field", "hint"),
    [
        (
            {"table_optimizer": {"cowclip": {"zeta": 0.0}}},
            "table_optimizer.cowclip.zeta",
            "greater than or equal to 1e-30",
        ),
        ({"table_optimizer": {"cowclip": {"r": -1.0}}}, "table_optimizer.cowclip.r", "greater than or equal to 0"),
        ({"table_optimizer": {"name": "sgd", "cowclip": {}}}, "table_optimizer.cowclip", "rowwise_adagrad"),
        (
            {"table_optimizer": {"cowclip": {}}, "resources": {"gpus_per_worker": 1}},
            "table_optimizer.cowclip",
            "null, or resources.gpus_per_worker 0",
        ),
        (
            {"table_optimizer": {"cowclip": {}}, "sharding": {"transport": "torchrec"}},
            "table_optimizer.cowclip",
            'sharding.transport "auto"',
        ),
        ({"table_optimizer": {"count_exponent": 1.5}}, "table_optimizer.count_exponent", "less than or equal to 1"),
        (
            {"table_optimizer": {"count_exponent": 0.5}, "resources": {"gpus_per_worker": 1}},
            "table_optimizer.count_exponent",
            "0, or resources.gpus_per_worker 0",
        ),
        (
            {"table_optimizer": {"count_exponent": 0.5}, "sharding": {"transport": "torchrec"}},
            "table_optimizer.count_exponent",
            'sharding.transport "auto"',
        ),
    ],
)
def test_what_does_not_work_names_the_field_and_what_would(document: dict[str, Any], field: str, hint: str):
    with pytest.raises(ConfigError) as caught:
        parse_job({**DATA, **document})
    (error,) = caught.value.errors
    assert error.field == field
    assert hint in str(error)


def test_a_run_that_clips_is_another_run():
    clipped, plain = (
        make_identity(JobConfig.model_validate({**DATA, "table_optimizer": {"cowclip": section}}))
        for section in ({}, None)
    )
    assert list_differences(clipped, plain) == ['table_optimizer.cowclip is {"r": 1.0, "zeta": 1e-05}, but was null']
    earlier = {field: value for field, value in plain.items() if field != "table_optimizer.cowclip"}
    assert list_differences(plain, earlier) == []
    document = {**DATA, "table_optimizer": {"count_exponent": 0.5}}
    followed = make_identity(JobConfig.model_validate(document))
    assert list_differences(followed, plain) == ["table_optimizer.count_exponent is 0.5, but was 0.0"]
