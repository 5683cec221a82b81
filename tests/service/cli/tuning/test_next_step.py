import pytest

from service.cli.render.tuning import describe_next_step
from service.cli.tuning.records import TrialRecord
from service.cli.tuning.tuner import Tuning


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
