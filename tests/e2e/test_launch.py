"""The launch process with real ranks: how runs end, and what they leave."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlrm.programs import evaluate
from dlrm.record import EndReason, EvaluationReport, RunDirectory, StepReport
from tests.e2e.launching import ONE_RANK, ended, reports_of, start
from tests.patience import wait_until

ENDLESS = {"epochs": 1000, "eval_every_fraction": 1.0}


def metrics_of(directory: RunDirectory) -> list[Any]:
    return reports_of(directory, "metrics")


def test_a_run_ends_with_a_model_that_scores_what_training_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    directory, process = start(tmp_path / "run", resources=ONE_RANK)
    code, outcome = ended(directory, process)
    assert (code, outcome.state, outcome.reason) == (0, "succeeded", EndReason.COMPLETED)

    reports = metrics_of(directory)
    steps = [report for report in reports if isinstance(report, StepReport)]
    evaluations = [report for report in reports if isinstance(report, EvaluationReport)]
    assert [step.step for step in steps] == list(range(1, steps[0].num_steps + 1))
    assert steps[-1].num_samples == outcome.metrics["num_samples"]
    assert len(evaluations) == 2
    assert evaluations[-1].best_possible_auc is not None
    assert outcome.metrics["auc"] == evaluations[-1].auc

    monkeypatch.setattr(sys, "argv", ["evaluate", str(directory.model)])
    assert evaluate.main() == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["num_rows"] == evaluations[-1].num_rows
    assert answer["auc"] == pytest.approx(evaluations[-1].auc, abs=1e-6)
    assert answer["log_loss"] == pytest.approx(evaluations[-1].log_loss, abs=1e-6)
    assert answer["constant_log_loss"] == pytest.approx(evaluations[-1].constant_log_loss, abs=1e-9)
    # The model of every evaluation was better than the one before.
    names = [f"step-{evaluation.step:08d}" for evaluation in evaluations]
    assert sorted(path.name for path in directory.checkpoints.iterdir()) == names


@pytest.mark.slow
def test_sigterm_ends_in_a_checkpoint_of_one_step_and_code_75(tmp_path: Path):
    directory, process = start(tmp_path / "run", run=ENDLESS, resources=ONE_RANK)
    wait_until(lambda: len(metrics_of(directory)) >= 3, process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    code, outcome = ended(directory, process)
    assert (code, outcome.state, outcome.reason) == (75, "stopped", EndReason.STOP_REQUESTED)
    assert [path.name for path in directory.checkpoints.iterdir()] == [f"step-{outcome.step:08d}"]
    assert not directory.model.exists()


@pytest.mark.slow
def test_bad_data_ends_with_code_64_and_names_file_line_and_field(tmp_path: Path):
    data = tmp_path / "bad.tsv"
    good = "\t".join(["1", *["3"] * 13, *["68fd1e64"] * 26])
    data.write_text(f"{good}\n{good.replace('68fd1e64', 'nothex', 1)}\n")
    directory, process = start(tmp_path / "run", data={"train": [str(data)]})
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert str(data) in outcome.message
    assert "line 2" in outcome.message
    assert "C1" in outcome.message


@pytest.mark.slow
def test_gpus_that_are_not_there_are_told_at_once(tmp_path: Path):
    directory, process = start(tmp_path / "run", resources={"workers_per_node": 64, "gpus_per_worker": 1})
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert outcome.message.startswith("resources.gpus_per_worker: the workers of this node ask for 64 GPU(s)")


def test_a_spec_that_is_no_job_ends_at_once_with_code_64(tmp_path: Path):
    directory = RunDirectory(tmp_path)
    directory.spec.write_text("{}")
    process = subprocess.Popen([sys.executable, "-m", "dlrm.launch", str(tmp_path)], stderr=subprocess.DEVNULL)
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert "job: required, but missing" in outcome.message
