"""Rates that follow the batch by a noise scale: the formulas of both kinds of optimizers, what is told and refused."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import (
    ConfigError,
    DenseOptimizerConfig,
    JobConfig,
    TableOptimizerConfig,
    compute_peak_rate,
    list_differences,
    make_identity,
    parse_job,
    resolve,
)

DATA: dict[str, Any] = {"data": {"format": "synthetic"}}
NOISE_SCALE, BASE = 2**20, 1024
SGD_LIKE = ["sgd", "momentum", "lars"]
SIGN_LIKE = ["adam", "adamw", "nadamw", "adagrad", "lamb", "soap", "adafactor", "schedule_free"]


def find_factor(
    name: str, batch: int, noise_scale: float = NOISE_SCALE, base_batch: int = BASE, is_table: bool = False
) -> float:
    schedule = {"scaling": "noise", "noise_scale": noise_scale, "base_batch": base_batch}
    kind = TableOptimizerConfig if is_table else DenseOptimizerConfig
    optimizer = kind.model_validate({"name": name, "learning_rate": 0.5, "schedule": schedule})
    return compute_peak_rate(optimizer, batch) / 0.5


def find_best_sgd_rate(batch: float, noise_scale: float) -> float:
    return 1 / (1 + noise_scale / batch)


def find_best_sign_rate(batch: float, noise_scale: float) -> float:
    return 1 / (0.5 * (math.sqrt(noise_scale / batch) + math.sqrt(batch / noise_scale)))


BATCHES = st.integers(1, 2**24)


@given(batch=BATCHES, base_batch=BATCHES, noise_scale=st.floats(0.01, 1e9), data=st.data())
def test_the_factor_is_the_ratio_of_the_best_rates_at_both_batches(
    batch: int, base_batch: int, noise_scale: float, data: st.DataObject
):
    names, find_best = data.draw(st.sampled_from([(SGD_LIKE, find_best_sgd_rate), (SIGN_LIKE, find_best_sign_rate)]))
    factor = find_factor(data.draw(st.sampled_from(names)), batch, noise_scale, base_batch)
    assert factor == pytest.approx(find_best(batch, noise_scale) / find_best(base_batch, noise_scale))


@pytest.mark.parametrize("name", SGD_LIKE)
def test_sgd_scales_linearly_far_below_the_noise_scale_and_not_at_all_far_above(name: str):
    assert find_factor(name, 8 * BASE) == pytest.approx(8, rel=0.01)
    assert find_factor(name, 800 * NOISE_SCALE) == pytest.approx(find_factor(name, 100 * NOISE_SCALE), rel=0.01)


@pytest.mark.parametrize("name", SIGN_LIKE)
def test_adam_scales_by_the_root_far_below_the_noise_scale_and_peaks_there(name: str):
    assert find_factor(name, 4 * BASE) == pytest.approx(2, rel=0.01)
    peak = find_factor(name, NOISE_SCALE)
    assert peak > max(find_factor(name, NOISE_SCALE // 2), find_factor(name, NOISE_SCALE * 2))
    assert peak > max(find_factor(name, NOISE_SCALE - 1024), find_factor(name, NOISE_SCALE + 1024))


@pytest.mark.parametrize(
    ("name", "find_best"),
    [("sgd", find_best_sgd_rate), ("adagrad", find_best_sign_rate), ("rowwise_adagrad", find_best_sign_rate)],
)
def test_tables_follow_a_noise_scale_of_their_own_by_their_own_optimizer(name: str, find_best: Any):
    expected = find_best(8192, 5000) / find_best(BASE, 5000)
    assert find_factor(name, 8192, 5000, is_table=True) == pytest.approx(expected)


def test_far_from_the_numbers_of_any_run_the_factor_is_finite():
    for noise_scale in (1e-6, 1e15):
        for name in ("sgd", "adam"):
            assert 0 < find_factor(name, 2**24, noise_scale, 1) < math.inf


def test_the_peak_is_told_with_the_noise_scale_that_it_goes_by():
    schedule = {"scaling": "noise", "noise_scale": 4096, "base_batch": 1024}
    batch = {"global_size": 4096, "growth": {"start_size": 1024}}
    sections = {"dense_optimizer": {"name": "momentum"}, "table_optimizer": {"name": "adagrad"}}
    filled = {name: {**section, "learning_rate": 0.1, "schedule": schedule} for name, section in sections.items()}
    resolved = resolve(JobConfig.model_validate({**DATA, "batch": batch, **filled}))
    derived = {number.name: number for number in resolved.derived}
    dense, table = (derived[f"{name}_peak_learning_rate"] for name in ("dense", "table"))
    assert (dense.value, table.value) == (pytest.approx(0.1 * 2.5), pytest.approx(0.1 * 2.5 / 2))
    assert dense.reason == (
        "learning_rate at 1024 samples, scaling noise (linear far below noise_scale 4096), to 4096; 0.1 at 1024"
    )
    assert "scaling noise (sqrt far below noise_scale 4096)" in table.reason


@pytest.mark.parametrize("section", ["dense_optimizer", "table_optimizer"])
@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"scaling": "noise"}, 'required by scaling "noise" (valid: samples, such as'),
        ({"scaling": "noise", "noise_scale": None}, 'required by scaling "noise"'),
        ({"scaling": "noise", "noise_scale": 0}, "greater than or equal to 1e-06"),
        ({"scaling": "noise", "noise_scale": -1.5}, "greater than or equal to 1e-06"),
        ({"scaling": "noise", "noise_scale": "auto"}, "should be a number"),
        ({"scaling": "legw", "noise_scale": 5}, 'scaling "legw" goes by no noise scale (valid: leave it out, or'),
        ({"scaling": "none", "noise_scale": 5}, 'or scaling "noise")'),
        ({"noise_scale": 5}, "goes by no noise scale"),
    ],
)
def test_a_noise_scale_is_stated_where_it_is_used_and_nowhere_else(
    section: str, schedule: dict[str, Any], message: str
):
    with pytest.raises(ConfigError) as caught:
        parse_job({**DATA, section: {"schedule": schedule}})
    (error,) = caught.value.errors
    assert error.field == f"{section}.schedule.noise_scale"
    assert message in str(error)


def test_another_noise_scale_is_another_run():
    def identify(schedule: dict[str, Any]) -> dict[str, Any]:
        return make_identity(JobConfig.model_validate({**DATA, "dense_optimizer": {"schedule": schedule}}))

    now, before = (identify({"scaling": "noise", "noise_scale": samples}) for samples in (5000, 4000))
    assert list_differences(now, before) == ["dense_optimizer.schedule.noise_scale is 5000.0, but was 4000.0"]
    # A run from before there was the field.
    older = {field: value for field, value in identify({}).items() if not field.endswith("noise_scale")}
    assert list_differences(identify({}), older) == []
    assert "dense_optimizer.schedule.noise_scale is 5000.0, but was null" in list_differences(now, older)
