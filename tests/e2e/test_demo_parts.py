"""What the demo decides, without running it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.demo.job import make_criteo_job, make_synthetic_job
from cli.demo.report import find_failure
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


@pytest.mark.parametrize(
    ("num_rows", "batch", "epochs"), [(10_000, 256, 1), (1_000_000, 16_384, 1), (50_000_000, 16_384, 1), (200, 64, 15)]
)
def test_few_rows_get_a_smaller_batch_and_very_few_more_epochs(
    tmp_path: Path, num_rows: int, batch: int, epochs: int
) -> None:
    data = tmp_path / "day_0.tsv"
    data.write_bytes(b"\n" * num_rows)
    job = parse_job(make_criteo_job(data))
    assert (job.batch.global_size, job.run.epochs) == (batch, epochs)


def test_data_that_is_not_there_or_too_little_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nowhere\.tsv: No such file"):
        make_criteo_job(tmp_path / "nowhere.tsv")
    (tmp_path / "few.tsv").write_text("1\n")
    with pytest.raises(BadInputError, match="1 rows are too few"):
        make_criteo_job(tmp_path / "few.tsv")


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
