"""A cooldown from any step, against the rates of the run that it leaves and a line to zero."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlrm.config import ConfigError, JobConfig, cool_down, list_stages
from dlrm.optimizers import LearningRates

SCHEDULE = [{"until_fraction": 0.1, "global_size": 32}, {"until_fraction": 0.2, "global_size": 48}]


def make_job(schedule: dict[str, Any], epochs: float = 1.0, **more: Any) -> JobConfig:
    document = {
        "data": {"format": "synthetic"},
        "batch": {"global_size": 64, "schedule": SCHEDULE},
        "dense_optimizer": {"name": "adam", "learning_rate": 1.0, "schedule": {"scaling": "none", **schedule}},
        "run": {"epochs": epochs, "patience": 2},
        "moments": None,
        "resources": {"workers_per_node": 1},
    }
    return JobConfig.model_validate(document | more)


def list_steps(job: JobConfig, num_rows: int) -> list[tuple[int, int, float, float]]:
    """List first row, end, dense rate and table rate of each step."""
    stages = list_stages(job, num_rows)
    rates = LearningRates(job, max(1, round(num_rows * job.run.epochs)), stages[0])
    return [
        (row, min(row + stage.full_rows, stage.end_row), rates.at(row, stage).dense, rates.at(row, stage).table)
        for stage in stages
        for row in range(stage.start_row, stage.end_row, stage.full_rows)
    ]


@given(
    num_rows=st.integers(1000, 20_000),
    epochs=st.sampled_from([0.7, 1.0, 2.3]),
    place=st.floats(0.25, 1.0),
    fraction=st.floats(0.01, 1.0),
    warmup=st.sampled_from([(0.0, {}), (0.1, {}), (0.12, {"scaling": "legw", "base_batch": 8})]),
)
def test_steps_before_are_those_of_the_run_and_the_rate_then_falls_to_zero_on_a_line(
    num_rows: int, epochs: float, place: float, fraction: float, warmup: tuple[float, dict[str, Any]]
) -> None:
    share, scaling = warmup
    # legw makes it 32 / 8 times as long.
    schedule = {"decay": "constant", "warmup_fraction": share / 4 if scaling else share, **scaling}
    job = make_job(schedule, epochs)
    num_warmup = 32 * round(share * round(max(1, round(num_rows * epochs)) / 32))
    run = list_steps(job, num_rows)
    num_samples = run[min(round(place * len(run)), len(run) - 2)][1]
    # The last step before has the batch, and so the peak, of the cooldown.
    assume(num_samples > list_stages(job, num_rows)[-1].start_row)
    assume(num_warmup <= min(num_samples, num_samples * (1 + fraction) / 2))
    cooled = cool_down(job, num_rows, num_samples, fraction)
    steps = list_steps(cooled, num_rows)
    before = [step for step in run if step[1] <= num_samples]
    assert steps[: len(before)] == before
    end = num_samples + max(1, round(fraction * num_samples))
    assert steps[-1][1] == end
    peak, late = before[-1][2], min(num_warmup / 64, 1.0)
    for row, _, dense, table in steps[len(before) :]:
        # Without warm-up the first step of a run has the whole rate, and all decays are a step later.
        left = end - row - late * 64
        assert table == before[-1][3]
        # A rate is never 0 before the end of a run: the last steps have that of a batch of the first size at least.
        if left >= 64:
            assert dense == pytest.approx(peak * min(left / (end - num_samples), 1.0), abs=1e-9)
    assert (cooled.run.keep_model, cooled.run.patience, cooled.run.target_auc) == ("last", None, None)


def test_the_tables_fall_too_if_their_decay_is_wsd_and_shares_of_the_run_stay_as_many_samples() -> None:
    more = {
        "table_optimizer": {"learning_rate": 1.0, "schedule": {"decay": "wsd"}},
        "averaging": {"half_life_fraction": 0.1},
        "pruning": {"from_fraction": 0.1, "until_fraction": 0.4},
        "run": {"epochs": 1.0},
    }
    job = make_job({"decay": "wsd", "autowu": {"max_fraction": 0.2}}, **more)
    cooled = cool_down(job, 64_000, 32_000, 0.25)
    assert cooled.run.epochs == pytest.approx(40_000 / 64_000)
    assert cooled.averaging is not None
    assert cooled.averaging.half_life_fraction == pytest.approx(6_400 / 40_000)
    assert cooled.dense_optimizer.schedule.autowu is not None
    assert cooled.dense_optimizer.schedule.autowu.max_fraction == pytest.approx(12_800 / 40_000)
    assert cooled.pruning is not None
    assert (cooled.pruning.from_fraction, cooled.pruning.until_fraction) == pytest.approx((0.16, 0.64))
    rates = [table for _, end, _, table in list_steps(cooled, 64_000) if end > 32_000]
    assert rates[62] == pytest.approx(rates[0] / 2, rel=0.02)


CONSTANT = {"decay": "constant"}
LAST = {"epochs": 1.0, "keep_model": "last"}


@pytest.mark.parametrize(
    ("schedule", "more", "num_samples", "field"),
    [
        ({"decay": "polynomial"}, {}, 5_000, "dense_optimizer.schedule.decay"),
        (
            CONSTANT,
            {"table_optimizer": {"schedule": {"decay": "cosine"}}},
            5_000,
            "table_optimizer.schedule.decay",
        ),
        ({"decay": "wsd"}, {}, 8_100, "dense_optimizer.schedule.cooldown_fraction"),
        (CONSTANT | {"warmup_fraction": 0.5}, {}, 4_000, "dense_optimizer.schedule.warmup_fraction"),
        (CONSTANT | {"autowu": {}}, {}, 4_000, "dense_optimizer.schedule.autowu"),
        (CONSTANT, {}, 1_900, "batch.schedule"),
        (
            CONSTANT,
            {"batch": {"global_size": 64, "growth": {"start_size": 8}}, "moments": {}},
            5_000,
            "batch.growth",
        ),
        ({}, {"dense_optimizer": {"name": "schedule_free"}}, 5_000, "dense_optimizer.name"),
        (CONSTANT | {"scaling": "adascale"}, {"moments": {}}, 5_000, "dense_optimizer.schedule.scaling"),
        (CONSTANT, {"pruning": {"until_fraction": 0.6}, "run": LAST}, 5_000, "pruning.until_fraction"),
        (CONSTANT, {"averaging": {"half_life_fraction": 0.7}}, 5_000, "averaging.half_life_fraction"),
    ],
)
def test_a_run_without_a_peak_to_fall_from_is_refused_by_its_field(
    schedule: dict[str, Any], more: dict[str, Any], num_samples: int, field: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        cool_down(make_job(schedule, **more), 10_000, num_samples, 0.2)
    assert [error.field for error in raised.value.errors] == [field]
