"""Jobs that go on from a model: their length, batch and rates, and from which jobs there is no cooldown."""

from typing import Any

import pytest

from dlrm.config import (
    ConfigError,
    JobConfig,
    JobSpec,
    list_stages,
    make_cooldown_job,
    make_retraining,
    parse_job,
    resolve,
)
from dlrm.optimizers import LearningRates

DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic"},
    "batch": {"global_size": 64, "schedule": [{"until_fraction": 0.5, "global_size": 32}]},
    "dense_optimizer": {
        "name": "adam",
        "learning_rate": 0.1,
        "schedule": {"scaling": "none", "decay": "constant", "warmup_fraction": 0.1},
    },
    "table_optimizer": {"learning_rate": 0.2},
    "run": {"epochs": 2.0, "patience": 3, "target_auc": 0.9},
}
NUM_ROWS = 64_000


def list_rates(job: JobConfig) -> list[tuple[float, float, float]]:
    """List dense rate, table rate and pruned share of each step."""
    (stage,) = list_stages(job, NUM_ROWS)
    rates = LearningRates(job, stage.end_row, stage)
    steps = [rates.at(64 * step, stage) for step in range(stage.end_step)]
    return [(rate.dense, rate.table, rate.pruned) for rate in steps]


def test_a_retraining_has_its_share_of_the_steps_a_tenth_of_the_dense_rate_and_still_tables() -> None:
    job = make_retraining(JobConfig.model_validate(DOCUMENT), "/runs/a", 0.3, 0.05)
    assert job.run.warm_start is not None
    assert (job.run.warm_start.source, job.run.warm_start.optimizer_state) == ("/runs/a", True)
    rates = list_rates(job)
    assert len(rates) == 0.05 * 2 * NUM_ROWS / 64
    assert [dense for dense, _, _ in rates[9:]] == [pytest.approx(0.01)] * 91
    assert all(table <= 1e-29 for _, table, _ in rates)
    assert {pruned for _, _, pruned in rates} == {0.3}
    assert (job.run.patience, job.run.target_auc, job.run.keep_model) == (None, None, "last")


def test_the_cooldown_of_a_job_falls_from_its_peak_rate_to_zero_on_a_line() -> None:
    job = make_cooldown_job(parse_job(DOCUMENT), "job_1", 0.1)
    rates = list_rates(resolve(job).job)
    assert len(rates) == 200
    assert [dense for dense, _, _ in rates] == pytest.approx([0.1 * (1 - step / 200) for step in range(200)], rel=0.01)
    assert {table for _, table, _ in rates} == {0.2}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"run": {}}, "run.epochs"),
        ({"dense_optimizer": {"schedule": {"decay": "cosine"}}}, "dense_optimizer.schedule.decay"),
        ({"table_optimizer": {"schedule": {"decay": "wsd"}}}, "table_optimizer.schedule.decay"),
        ({"dense_optimizer": {"name": "schedule_free"}}, "dense_optimizer.name"),
        (
            {"dense_optimizer": {"schedule": {"scaling": "none", "decay": "constant", "autowu": {}}}},
            "dense_optimizer.schedule.autowu",
        ),
        ({"batch": {"global_size": "auto"}}, "batch.global_size"),
        ({"batch": {"global_size": 64, "growth": {"start_size": 8}}}, "batch.growth"),
    ],
)
def test_a_job_whose_rate_is_not_at_its_peak_has_no_cooldown(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_cooldown_job(JobSpec.model_validate(DOCUMENT | changes), "job_1", 0.1)
    assert [fault.field for fault in caught.value.errors] == [field]


def test_what_is_pruned_stays_so_in_a_cooldown_and_a_retraining() -> None:
    pruned = DOCUMENT | {"pruning": {"share": 0.8}, "run": {"epochs": 2.0}}
    cooldown = make_cooldown_job(parse_job(pruned), "job_1", 0.1)
    assert {share for _, _, share in list_rates(resolve(cooldown).job)} == {0.8}
    retraining = make_retraining(JobConfig.model_validate(pruned), "/runs/a", 0.3, 0.05)
    assert {share for _, _, share in list_rates(retraining)} == {0.8}
