"""The time that a trial is said to have taken."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.experiments.trials import run
from cli.experiments.trials.run import run_trial
from dlrm.record import EndReason, Outcome, RunDirectory


@pytest.mark.parametrize(("num_samples", "expected"), [(7200.0, 720.0), (0.001, 0.0)])
def test_the_steps_of_attempts_that_were_stopped_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_samples: float, expected: float
) -> None:
    """The last attempt takes no time here; its outcome tells the samples and the speed of all."""
    metrics = {"num_samples": num_samples, "samples_per_second": 10.0}
    outcome = Outcome(state="succeeded", reason=EndReason.COMPLETED, metrics=metrics)
    monkeypatch.setattr(run, "_start", lambda *_: None)
    monkeypatch.setattr(run, "run_attempt", lambda *_: SimpleNamespace(outcome=outcome, is_stop_requested=False))
    end = run_trial(tmp_path / "job.toml", RunDirectory(tmp_path), {}, "adam", is_first=False)
    assert end.seconds == pytest.approx(expected, abs=0.1)
