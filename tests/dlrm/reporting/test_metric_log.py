import logging
from pathlib import Path

import pytest

from dlrm.record import AttemptDirectory, EvaluationReport, StepReport
from dlrm.reporting import metric_log
from dlrm.reporting.reporter import Reporter
from dlrm.trackers.tracker import Figures
from tests import made_reports
from tests.dlrm.evaluated import evaluation


def make_step(step: int, loss: float | None) -> StepReport:
    return made_reports.make_step(step, num_steps=1000, loss=loss, samples_per_second=640.0, dropped=loss is None)


def log_of(directory: Path, rank: int, caplog: pytest.LogCaptureFixture, *reports: StepReport | EvaluationReport):
    attempt = AttemptDirectory(directory)
    attempt.create()
    reporter = Reporter(attempt, rank)
    with caplog.at_level(logging.INFO, logger="dlrm"):
        for report in reports:
            reporter.metric(report)
    reporter.close()
    return [record.getMessage() for record in caplog.records]


def test_every_evaluation_is_one_line_of_the_first_ranks_log(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    report = evaluation(0.4).model_copy(
        update={"step": 1200, "auc": 0.75, "auc_standard_error": 0.002, "calibration": 1.01, "num_rows": 5000}
    )
    without_auc = report.model_copy(update={"auc": None, "auc_standard_error": None, "calibration": None})
    grouped = report.model_copy(update={"grouped": {"recall_at_5": 0.25, "ndcg_at_5": 0.5, "grouped_auc": 0.625}})
    first, second, third = log_of(tmp_path, 0, caplog, report, without_auc, grouped)
    assert first.startswith(
        "evaluation after step 1,200: AUC 0.75000 (standard error 0.00200), log-loss 0.40000 (constant predictor "
        "0.50000), calibration 1.0100; 5,000 rows in "
    )
    assert second.startswith("evaluation after step 1,200: no AUC, since all rows have the same label, log-loss")
    within_groups = "AUC within groups 0.625, recall@5 within groups 0.25, NDCG@5 within groups 0.5"
    assert f"calibration 1.0100, {within_groups}; 5,000 rows" in third
    values = Figures.of_report(grouped).values
    assert (values["evaluation/grouped_auc"], values["evaluation/recall_at_5"]) == (0.625, 0.25)


def test_other_ranks_log_no_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    assert log_of(tmp_path, 1, caplog, make_step(1, 0.5), evaluation(0.4)) == []


def test_first_and_last_steps_are_logged_and_none_too_soon_between(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(metric_log, "SECONDS_BETWEEN_LINES", 3600.0)
    steps = [make_step(1, 0.7), make_step(2, 0.6), make_step(3, None), make_step(1000, 0.4)]
    first, last = log_of(tmp_path, 0, caplog, *steps)
    assert first == "step 1 of 1,000 (0 %): loss 0.7000, 640 samples/s"
    assert last.startswith("step 1,000 of 1,000 (100 %): loss 0.5000, ")
    assert "left" not in last


def test_a_line_about_steps_comes_after_every_interval(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(metric_log, "SECONDS_BETWEEN_LINES", 0.0)
    lines = log_of(tmp_path, 0, caplog, make_step(1, 0.7), make_step(2, None), make_step(3, 0.6))
    assert [line.split(",")[0] for line in lines] == [
        "step 1 of 1",
        "step 2 of 1",
        "step 3 of 1",
    ]
    assert "no finite loss" in lines[1]
    assert ["left" in line for line in lines] == [False, True, True]
