"""Time and evaluation curve of a trial from its run."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.experiments.trials import local
from cli.experiments.trials.ended_run import read_curve
from cli.experiments.trials.local import LocalRunner
from cli.experiments.trials.runner import ExperimentStopped
from dlrm.config import resolve
from dlrm.record import EndReason, Outcome, RunDirectory
from tests.cli.experiments.sweep.sweeps import make_plan
from tests.made_reports import make_evaluation, make_step


@pytest.mark.parametrize(("num_samples", "expected"), [(7200.0, 720.0), (0.001, 0.0)])
def test_the_steps_of_attempts_that_were_stopped_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_samples: float, expected: float
) -> None:
    """The last attempt takes no time here; its outcome tells the samples and the speed of all."""
    metrics = {"num_samples": num_samples, "samples_per_second": 10.0}
    outcome = Outcome(state="succeeded", reason=EndReason.COMPLETED, metrics=metrics)
    trial = make_plan(tmp_path).list_due({})[0]
    (tmp_path / trial.key).mkdir()
    RunDirectory(tmp_path / trial.key).spec.write_text(resolve(trial.spec).model_dump_json())
    monkeypatch.setattr(local, "_start", lambda *_: None)
    monkeypatch.setattr(local, "run_attempt", lambda *_: SimpleNamespace(outcome=outcome, is_stop_requested=True))
    runner = LocalRunner(tmp_path, tmp_path, scores_in=None, keeps_runs=False)
    runner.start(trial, "")
    ((_, result),) = runner.wait()
    assert result.seconds == pytest.approx(expected, abs=0.1)
    with pytest.raises(ExperimentStopped):
        runner.start(trial, "")


def test_a_damaged_line_of_a_spool_is_left_out(tmp_path: Path) -> None:
    reports = [make_step(1), make_evaluation(1, auc=0.6), make_evaluation(2, auc=0.7)]
    lines = [report.model_dump_json().encode() for report in reports]
    spool = RunDirectory(tmp_path).attempt(1).spool_file(0, "metrics")
    spool.parent.mkdir(parents=True)
    spool.write_bytes(b"\n".join([lines[0], b'{"seq": 7, "kind": "st\x00\x00', *lines[1:], b""]))
    assert [(point.step, point.auc) for point in read_curve(RunDirectory(tmp_path), 1)] == [(1, 0.6), (2, 0.7)]
