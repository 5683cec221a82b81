"""What the demo decides, without running it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.demo.job import find_failure, make_criteo_job, make_synthetic_job
from cli.local.errors import BadInputError
from dlrm.config import parse_job
from service.client import JobDetails


def ended(state: str = "SUCCEEDED", **metrics: float | None) -> JobDetails:
    return JobDetails(
        id="job_1",
        name="demo",
        state=state,
        reason="a_reason",
        created_at=datetime.now(UTC),
        world_size=2,
        metrics=metrics,
    )


def test_the_synthetic_demo_has_a_large_batch_and_at_least_30_steps() -> None:
    job = parse_job(make_synthetic_job())
    assert job.data.synthetic is not None
    assert job.data.synthetic.num_rows == 1_000_000
    assert job.batch.global_size >= 16_384
    assert job.resources.world_size == 2
    assert job.data.synthetic.num_rows * (1 - job.data.eval_fraction) / job.batch.global_size >= 30


def test_rows_of_the_user_decide_batch_and_epochs_and_must_be_there(tmp_path: Path) -> None:
    few = parse_job(make_synthetic_job(10_000))
    assert few.data.synthetic is not None
    (tmp_path / "day[0].tsv").touch()
    own = parse_job(make_criteo_job(tmp_path / "day[0].tsv"))
    assert few.data.synthetic.num_rows == 10_000
    assert {job.batch.global_size for job in (few, own)} == {job.run.epochs for job in (few, own)} == {"auto"}
    assert own.data.train == ["day[[]0].tsv"]
    with pytest.raises(BadInputError, match=r"nowhere\.tsv: no such file"):
        make_criteo_job(tmp_path / "nowhere.tsv")


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (ended(auc=0.76, best_possible_auc=0.80), None),
        (ended(auc=0.73, best_possible_auc=0.80), "AUC 0.73"),
        (ended(auc=None, best_possible_auc=0.80), "AUC None"),
        (ended(log_loss=0.44, constant_log_loss=0.50), None),
        (ended(log_loss=0.50, constant_log_loss=0.50), "log-loss 0.5"),
        (ended(), "log-loss None"),
        (ended("FAILED", auc=0.79, best_possible_auc=0.80), "FAILED: a_reason"),
    ],
)
def test_only_a_model_that_has_learned_passes(job: JobDetails, said: str | None) -> None:
    failure = find_failure(job)
    assert failure == said if said is None else said in str(failure)
