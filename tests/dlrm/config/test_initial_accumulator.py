"""Where the sums of squares of the tables begin: its units, what it is refused with, and runs that differ by it."""

from typing import Any

import pytest

from dlrm.config import ConfigError, JobConfig, list_differences, make_identity, parse_job, resolve

DATA: dict[str, Any] = {"data": {"format": "synthetic"}}


def make_document(initial: float, **fields: Any) -> dict[str, Any]:
    return {**DATA, **fields, "table_optimizer": {"initial_accumulator": initial}}


@pytest.mark.parametrize(
    ("batch", "state"),
    [
        ({"global_size": 2048}, 0.01),
        ({"global_size": 524_288}, 0.01),
        ({"global_size": 100_000}, 0.01 * (131_072 / 100_000) ** 2),
        ({"global_size": 80_000}, 0.01 * (65_536 / 80_000) ** 2),
        ({"global_size": 4096, "schedule": [{"until_fraction": 0.5, "global_size": 1000}]}, 0.01),
        ({"global_size": 4096, "growth": {"start_size": 1024}}, 0.01),
    ],
)
def test_it_is_converted_to_the_final_batchs_scale_with_a_reason(batch: dict[str, Any], state: float):
    resolved = resolve(JobConfig.model_validate(make_document(0.01, batch=batch)))
    assert resolved.table_initial_state == pytest.approx(state, rel=1e-12)
    (told,) = [number for number in resolved.derived if number.name == "table_initial_state"]
    assert told.value == resolved.table_initial_state
    assert "initial_accumulator 0.01 x (gradient_scale / global_size)^2" in told.reason


def test_by_default_it_is_zero_and_nothing_is_told():
    resolved = resolve(JobConfig.model_validate(DATA))
    assert resolved.table_initial_state == 0.0
    assert "table_initial_state" not in {number.name for number in resolved.derived}
    assert parse_job({**DATA, "table_optimizer": {"name": "sgd", "initial_accumulator": 0.0}})


@pytest.mark.parametrize("name", ["rowwise_adagrad", "adagrad"])
def test_both_adagrads_have_it_and_a_preset_leaves_it(name: str):
    document = {**DATA, "preset": "large_batch", "table_optimizer": {"name": name, "initial_accumulator": 0.1}}
    optimizer = parse_job(document).table_optimizer
    assert (optimizer.name, optimizer.initial_accumulator) == (name, 0.1)


@pytest.mark.parametrize(
    ("optimizer", "hint"),
    [
        ({"name": "sgd", "initial_accumulator": 0.1}, "table_optimizer.name rowwise_adagrad or adagrad"),
        ({"initial_accumulator": -0.1}, "greater than or equal to 0"),
        ({"initial_accumulator": 1e31}, "less than or equal to"),
        ({"initial_accumulator": float("inf")}, "finite"),
        ({"initial_accumulator": float("nan")}, "finite"),
    ],
)
def test_what_does_not_work_names_the_field_and_what_would(optimizer: dict[str, Any], hint: str):
    with pytest.raises(ConfigError) as caught:
        parse_job({**DATA, "table_optimizer": optimizer})
    (error,) = caught.value.errors
    assert error.field == "table_optimizer.initial_accumulator"
    assert hint in str(error)


def test_a_run_whose_sums_begin_elsewhere_is_another_run_and_earlier_ones_began_at_zero():
    begun, plain = (make_identity(JobConfig.model_validate(make_document(initial))) for initial in (0.01, 0.0))
    assert list_differences(begun, plain) == ["table_optimizer.initial_accumulator is 0.01, but was 0.0"]
    earlier = {field: value for field, value in plain.items() if field != "table_optimizer.initial_accumulator"}
    assert list_differences(plain, earlier) == []
    assert list_differences(begun, earlier) == ["table_optimizer.initial_accumulator is 0.01, but was 0.0"]
