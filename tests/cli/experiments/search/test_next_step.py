import pytest

from cli.experiments.search.records import TrialRecord
from cli.experiments.search.tuner import Tuning
from cli.render.tuning import describe_next_step
from dlrm.record import EndReason


def make_record(trial: int, auc: float | None) -> TrialRecord:
    return TrialRecord(
        trial=trial,
        rung=0,
        fraction=1.0,
        settings={},
        state="succeeded",
        reason="completed",
        validation_log_loss=0.5 - trial / 100,
        auc=auc,
        auc_standard_error=None if auc is None else 0.01,
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("trial", "reason", "is_repeated"),
    [
        (2, EndReason.WORKER_CRASHED, True),
        (2, EndReason.OUT_OF_MEMORY, True),
        (2, EndReason.DIVERGED, False),
        (2, EndReason.BAD_INPUT, False),
        (0, EndReason.BAD_INPUT, True),
    ],
)
def test_a_trial_that_failed_is_tried_again_where_that_may_help_and_the_untuned_job_always(
    trial: int, reason: EndReason, is_repeated: bool
) -> None:
    failed = make_record(trial, None).model_copy(update={"state": "failed", "reason": reason})
    assert failed.is_retryable is is_repeated
    assert not failed.model_copy(update={"state": "succeeded"}).is_retryable


@pytest.mark.parametrize(
    ("trial", "auc", "untuned_auc", "document"),
    [
        (0, 0.7, 0.7, "job.toml"),
        (0, None, None, "job.toml"),
        (3, 0.705, 0.7, "job.toml"),
        (3, 0.68, 0.7, "job.toml"),
        (3, 0.72, 0.7, "best.toml"),
        (3, None, None, "best.toml"),
    ],
)
def test_the_document_to_train_is_the_untuned_one_unless_a_trial_is_certainly_better(
    trial: int, auc: float | None, untuned_auc: float | None, document: str
) -> None:
    best, untuned = make_record(trial, auc), make_record(0, untuned_auc)
    tuning = Tuning(best, untuned, [best, untuned], 3, 2.0, 2.0)
    assert describe_next_step(tuning, "dlrm train job.toml", "dlrm train best.toml").endswith(f" {document}")
