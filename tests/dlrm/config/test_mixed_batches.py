"""Mixed-batch training: most samples in small batches, the rest in large ones, each with rates of its own."""

from typing import Any

import pytest

from dlrm.config import ConfigError, DataFacts, JobConfig, keep_decisions, list_stages, parse_job, resolve
from dlrm.optimizers import LearningRates
from service.plans.service import compute_learning_rates

NUM_ROWS = 1_000_000
SCHEDULE = {"scaling": "legw", "base_batch": 512, "warmup_fraction": 0.05, "decay": "polynomial", "power": 2.0}
DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic"},
    "batch": {"global_size": 4096, "schedule": "mixed"},
    "dense_optimizer": {"name": "lamb", "learning_rate": 0.01, "schedule": SCHEDULE},
    "run": {"epochs": 1},
    "moments": None,
}


def decide(**changes: Any) -> JobConfig:
    return resolve(parse_job({**DOCUMENT, **changes}), facts=DataFacts(num_train_rows=NUM_ROWS)).job


def test_nine_tenths_of_the_samples_are_in_batches_of_an_eighth_and_stay_so_in_later_attempts() -> None:
    job = decide(resources={"workers_per_node": 4})
    assert [stage.model_dump() for stage in job.batch.schedule] == [{"until_fraction": 0.9, "global_size": 512}]
    assert job.batch.rewarmup
    assert keep_decisions(parse_job(DOCUMENT), job).batch.model_dump() == job.batch.model_dump()
    # Large batches begin with the size that a growing one begins with.
    assert decide(batch={"global_size": 524_288, "schedule": "mixed"}).batch.first_size == 16_384
    assert not decide(batch={"schedule": "auto"}).batch.rewarmup


def test_each_size_warms_up_and_decays_as_a_run_of_its_samples_would() -> None:
    """By LEGW, s = B / 512: a peak of 0.01 sqrt(s) after a warm-up of 0.05 s of the samples of the size."""
    job = decide()
    small, large = stages = list_stages(job, NUM_ROWS)
    assert (small.end_row, large.end_row) == (900_096, NUM_ROWS)
    rates = LearningRates(job, NUM_ROWS, small, parts=stages)
    for stage, scale in ((small, 1.0), (large, 8.0)):
        num_steps = (stage.end_row - stage.start_row) / stage.global_size
        num_warmup = round(0.05 * scale * round(num_steps))
        for step in range(stage.num_steps):
            done = step + 1
            left = 1.0 - (done - max(num_warmup, 1)) / (num_steps - num_warmup)
            factor = done / num_warmup if done < num_warmup else max(left, 1 / (num_steps - num_warmup + 1)) ** 2
            found = rates.at(stage.start_row + step * stage.global_size, stage)
            assert found.dense == pytest.approx(0.01 * scale**0.5 * factor)
            # Those of tables are constant by default.
            assert found.table == job.table_optimizer.learning_rate


def test_the_rates_that_a_plan_shows_have_both_warm_ups() -> None:
    plain = {**SCHEDULE, "scaling": "none", "warmup_fraction": 0.2}
    points = compute_learning_rates(decide(dense_optimizer={"name": "sgd", "learning_rate": 1.0, "schedule": plain}))
    peaks = [point.done_fraction for point in points if point.dense > 0.999]
    assert peaks == pytest.approx([0.18, 0.92], abs=0.011)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {"batch": {"global_size": 64, "growth": {"start_size": 8}, "rewarmup": True}, "moments": {}},
            "batch.rewarmup",
        ),
        ({"dense_optimizer": {"schedule": {"autowu": {}}}}, "dense_optimizer.schedule.autowu"),
        ({"batch": {"schedule": "mixd"}}, "batch.schedule"),
    ],
)
def test_what_has_no_rates_of_its_own_is_refused_by_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_job({**DOCUMENT, **changes})
    assert [error.field for error in raised.value.errors] == [field]
