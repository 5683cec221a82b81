"""Numbers that follow from a document alone."""

from typing import Any

import pytest

from dlrm.config import JobConfig, resolve


@pytest.mark.parametrize(
    ("changes", "every"),
    [
        ({"batch": {"global_size": 1024}}, 4),
        ({"batch": {"global_size": 16_384}}, 1),
        ({"batch": {"global_size": 1024}, "variance_reduction": {}}, 1),
        ({"batch": {"global_size": 1024}, "moments": {"every": 5}}, 5),
    ],
)
def test_moments_that_are_only_watched_are_measured_once_in_many_samples(changes: dict[str, Any], every: int):
    resolved = resolve(JobConfig.model_validate({"data": {"format": "synthetic"}, **changes}))
    assert resolved.moments_every == every
    assert {number.name: number.value for number in resolved.derived}["moments_every"] == every
