"""Progress of what takes time without steps: evaluations, and the work after the last step."""

from pathlib import Path

import pytest

from dlrm.config import JobConfig
from dlrm.record import AttemptDirectory, ProgressReport, SpoolReader, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.train import finishing
from dlrm.train.finishing import BLEND, EXPORT, EvaluationProgress, Finishing, list_parts

DOCUMENT = {"data": {"format": "synthetic"}, "run": {"blend": "logistic", "validation_fraction": 0.1}}


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AttemptDirectory:
    monkeypatch.setattr(finishing, "REPORT_SECONDS", 0.0)
    return AttemptDirectory(tmp_path)


def read_progress(attempt: AttemptDirectory) -> list[ProgressReport]:
    reports = [parse_report(line) for line in SpoolReader(attempt.spool_file(0, "events")).read()]
    return [report for report in reports if isinstance(report, ProgressReport)]


def test_every_part_after_the_last_step_says_what_comes_next_and_moves(
    attempt: AttemptDirectory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(finishing, "find_boosted_trees", lambda: "lightgbm")
    progress = Finishing(Reporter(attempt, 0), list_parts(JobConfig.model_validate(DOCUMENT)))
    progress.begin(BLEND)
    progress.begin("logistic_regression")
    progress.begin("lightgbm")
    progress.move(0.5, "tree 250 of at most 500")
    progress.begin(EXPORT)
    reports = read_progress(attempt)
    assert [report.message for report in reports] == [
        "blending the model with logistic regression; then comparing the model with logistic regression",
        "comparing the model with logistic regression, 1 of 2 simple models; then comparing the model with LightGBM",
        "comparing the model with LightGBM, 2 of 2 simple models; then writing the model",
        "comparing the model with LightGBM, 2 of 2 simple models: tree 250 of at most 500; then writing the model",
        "writing the model",
    ]
    fractions = [report.done_fraction or 0.0 for report in reports]
    assert fractions == sorted(set(fractions))
    assert fractions[0] == 0.0
    assert fractions[-1] < 1.0
    assert [report.phase for report in reports] == ["finishing"] * 5
    assert [report.eta_seconds is None for report in reports] == [True, False, False, False, False]


def test_a_job_without_comparisons_only_writes_its_model():
    document = {"data": {"format": "synthetic"}, "run": {"blend": "none", "yardsticks": "none"}}
    assert [part.name for part in list_parts(JobConfig.model_validate(document))] == [EXPORT]


def test_a_long_evaluation_counts_its_rows(attempt: AttemptDirectory):
    tell = EvaluationProgress(Reporter(attempt, 0), 300, "validation rows")
    for num_scored in (100, 200, 300):
        tell(num_scored)
    assert [report.message for report in read_progress(attempt)][-1] == "300 of 300 validation rows"
    assert read_progress(attempt)[-1].done_fraction == 1.0
