"""Bounds of the numbers of a job document: every one has both, and no numbers break what is derived from them."""

import json
from typing import Any

import pytest
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrm.config import ConfigError, DataFacts, JobConfig, JobSpec, parse_job, resolve
from tests.dlrm.config.extreme_documents import BASE, FP32_MAX, draw_documents, list_numbers, set_value


@pytest.mark.parametrize("kind", [JobSpec, JobConfig])
def test_every_number_has_a_lower_and_an_upper_bound(kind: type[JobSpec]) -> None:
    numbers = {path: constraints for path, _, constraints in list_numbers(kind, [], ())}
    open_paths = [
        ".".join(map(str, path))
        for path, constraints in numbers.items()
        if not (
            any(isinstance(it, Ge | Gt) for it in constraints) and any(isinstance(it, Le | Lt) for it in constraints)
        )
    ]
    assert len(numbers) > 70
    assert not open_paths


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("dense_optimizer.learning_rate", 1e308, "should be less than or equal to 1,000,000, got 1e+308"),
        ("dense_optimizer.learning_rate", 0, "greater than or equal to 1e-30, got 0 (valid: 1e-30 to 1,000,000)"),
        ("table_optimizer.learning_rate", 10**400, "is out of range, got 1000"),
        ("dense_optimizer.weight_decay", 1e300, "(valid: 0 to 1,000,000, or null)"),
        ("dense_optimizer.schedule.base_batch", 10**400, "(valid: 1 to 16,777,216)"),
        pytest.param("priority", 16**4000, "got a whole number of more than 4,300 digits", id="4,817 digits"),
        ("deadline_seconds", 2**63, "(valid: 1 to 316,224,000, or null)"),
        ("batch.chunk_size", 1.5, "1.5 is not one of the choices (valid: 'auto', or 1 to 16,777,216)"),
        ("model.top_mlp.0", 10**9, "(valid: 1 to 65,536)"),
    ],
)
def test_a_number_beyond_its_bounds_is_told_with_those_that_are_valid(field: str, value: Any, words: str) -> None:
    path = tuple(int(part) if part.isdecimal() else part for part in field.split("."))
    with pytest.raises(ConfigError) as caught:
        parse_job(set_value(BASE, path, value))
    [error] = caught.value.errors
    assert error.field == field
    assert words in str(error)


def test_the_largest_rate_of_a_group_at_the_largest_scaling_stays_within_fp32() -> None:
    schedule = {"scaling": "linear", "base_batch": 1}
    group = {"parameters": "*", "learning_rate_factor": 1e6, "weight_decay": 1e6}
    optimizer = {"name": "adamw", "learning_rate": 1e6, "schedule": schedule, "groups": [group]}
    job = resolve(
        parse_job({**BASE, "batch": {"global_size": 2**24}, "dense_optimizer": optimizer}),
        facts=DataFacts(num_train_rows=10**8),
    )
    peak = next(number.value for number in job.derived if number.name == "dense_peak_learning_rate")
    assert peak == 1e6 * 2**24
    assert peak * group["learning_rate_factor"] * group["weight_decay"] < FP32_MAX


@settings(max_examples=200)
@given(draw_documents(), st.sampled_from([None, 1, 18_000, 2**40]))
def test_extreme_numbers_are_refused_or_give_finite_ones(document: dict[str, Any], num_rows: int | None) -> None:
    facts = None if num_rows is None else DataFacts(num_train_rows=num_rows)
    try:
        resolved = resolve(parse_job(document), facts=facts)
    except ConfigError:
        return
    json.dumps(resolved.model_dump(mode="json"), allow_nan=False)
