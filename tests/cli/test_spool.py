from contextlib import closing
from pathlib import Path

import pytest

from cli.local.console import MAX_WARNINGS
from cli.local.progress import ProgressLine, describe_progress
from cli.local.spool import SpoolProgress
from dlrm.record import (
    AttemptDirectory,
    EvaluationReport,
    EventReport,
    ProgressReport,
    SpoolWriter,
    StartReport,
    StepReport,
)


def step(number: int, samples_per_second: float) -> StepReport:
    return StepReport(
        step=number,
        num_steps=10,
        num_samples=100 * number,
        loss=0.5,
        dense_learning_rate=0.1,
        table_learning_rate=0.1,
        samples_per_second=samples_per_second,
    )


def test_progress_is_what_rank_0_has_reported_so_far(tmp_path: Path) -> None:
    attempt = AttemptDirectory(tmp_path)
    progress = SpoolProgress(attempt, print)
    assert progress.read().phase == "starting"
    with (
        closing(SpoolWriter(attempt.spool_file(0, "events"))) as events,
        closing(SpoolWriter(attempt.spool_file(0, "metrics"))) as metrics,
    ):
        events.write(ProgressReport(phase="training"))
        metrics.write(step(1, 100.0))
        metrics.write(step(2, 100.0))
        seen = progress.read()
        assert (seen.phase, seen.step, seen.done_fraction) == ("training", 2, 0.2)
        assert seen.eta_seconds == pytest.approx(8.0)
        metrics.write(evaluation(2, 0.75))
        assert describe_progress(progress.read()) == "step 2/10 · loss 0.5000 · AUC 0.7500 · 100 samples/s · 8 s left"


def evaluation(number: int, auc: float) -> EvaluationReport:
    return EvaluationReport(
        step=number,
        num_rows=10,
        auc=auc,
        log_loss=0.5,
        normalized_entropy=0.9,
        calibration=1.0,
        constant_log_loss=0.55,
        seconds=1.0,
    )


def test_every_line_has_the_auc_of_the_newest_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    attempt = AttemptDirectory(tmp_path)
    progress = SpoolProgress(attempt, print)
    with (
        closing(SpoolWriter(attempt.spool_file(0, "events"))) as events,
        closing(SpoolWriter(attempt.spool_file(0, "metrics"))) as metrics,
        ProgressLine() as line,
    ):

        def show() -> None:
            seen = progress.read()
            line.show(seen.phase or "", seen)

        events.write(ProgressReport(phase="training"))
        for number in (1, 2):
            metrics.write(step(5 * number, 100.0))
            events.write(ProgressReport(phase="evaluating", message=f"after step {5 * number}"))
            show()
            metrics.write(evaluation(5 * number, 0.6 + 0.1 * number))
            show()
    lines = [line.split(" · ") for line in capsys.readouterr().err.splitlines()]
    aucs = [(figures[0].split()[-1], [figure for figure in figures if "AUC" in figure]) for figures in lines]
    assert aucs == [("5/10", ["AUC 0.7000"]), ("10/10", []), ("10/10", ["AUC 0.8000"])]


def test_a_preparation_says_how_far_it_is_and_training_starts_anew(tmp_path: Path) -> None:
    attempt = AttemptDirectory(tmp_path)
    progress = SpoolProgress(attempt, print)
    with closing(SpoolWriter(attempt.spool_file(0, "events"))) as events:
        events.write(ProgressReport(phase="preparing", done_fraction=0.25, message="reading: 9 rows/s"))
        seen = progress.read()
        assert (seen.phase, seen.done_fraction, describe_progress(seen)) == ("preparing", 0.25, "reading: 9 rows/s")
        events.write(ProgressReport(phase="training"))
        assert (progress.read().done_fraction, describe_progress(progress.read())) == (None, "")


def test_what_people_should_see_is_kept_apart_from_what_is_merely_noted(tmp_path: Path) -> None:
    attempt = AttemptDirectory(tmp_path)
    progress = SpoolProgress(attempt, print)
    with closing(SpoolWriter(attempt.spool_file(0, "events"))) as events:
        events.write(EventReport(name="plan", message="tables are dealt out"))
        events.write(EventReport(name="few_steps", message="1 step(s) are too few"))
    progress.read()
    assert progress.warnings == ["1 step(s) are too few"]


def test_a_run_that_goes_on_is_shown_from_where_it_goes_on(tmp_path: Path) -> None:
    attempt = AttemptDirectory(tmp_path)
    said: list[str] = []
    progress = SpoolProgress(attempt, said.append, num_steps=10)
    with (
        closing(SpoolWriter(attempt.spool_file(0, "events"))) as events,
        closing(SpoolWriter(attempt.spool_file(0, "metrics"))) as metrics,
    ):
        events.write(EventReport(name="checkpoint_passed_over", message="step 8 is skipped: it is incomplete"))
        progress.read()
        assert said == ["warning: step 8 is skipped: it is incomplete"]
        events.write(EventReport(name="resumed", message="resumes at step 6 of 10"))
        events.write(ProgressReport(phase="training"))
        metrics.write(StartReport(step=6, evaluated_step=5))
        seen = progress.read()
        assert (seen.phase, seen.done_fraction, describe_progress(seen)) == ("training", 0.6, "step 6/10")
        metrics.write(step(7, 100.0))
        assert progress.read().eta_seconds == pytest.approx(3.0)
    assert progress.warnings == ["step 8 is skipped: it is incomplete"]
    assert said[1:] == ["resumes at step 6 of 10"]


def test_a_run_that_resumes_where_its_batch_grows_has_done_its_share_of_the_samples(tmp_path: Path) -> None:
    """Six of ten steps have made 100 of the 1,000 samples."""
    attempt = AttemptDirectory(tmp_path)
    with closing(SpoolWriter(attempt.spool_file(0, "metrics"))) as metrics:
        metrics.write(StartReport(step=6, evaluated_step=5, num_samples=100, num_run_samples=1000, global_size=20))
    assert SpoolProgress(attempt, print, num_steps=10).read().done_fraction == 0.1


def test_a_run_whose_checkpoints_are_all_damaged_is_said_to_begin_from_the_start(tmp_path: Path) -> None:
    attempt = AttemptDirectory(tmp_path)
    said: list[str] = []
    with closing(SpoolWriter(attempt.spool_file(0, "metrics"))) as metrics:
        metrics.write(StartReport(step=0, evaluated_step=0))
    SpoolProgress(attempt, said.append).read()
    assert said == []
    seen = SpoolProgress(attempt, said.append, num_steps=10).read()
    assert (said, seen.step) == (["starts from the beginning: every checkpoint is damaged"], None)


def test_of_many_warnings_of_one_kind_the_first_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    attempt = AttemptDirectory(tmp_path)
    said: list[str] = []
    progress = SpoolProgress(attempt, said.append)
    with closing(SpoolWriter(attempt.spool_file(0, "events"))) as events:
        for number in range(MAX_WARNINGS + 3):
            events.write(EventReport(name="step_dropped", message=f"step {number} is dropped"))
        events.write(EventReport(name="checkpoint_failed", message="no space left"))
    progress.read()
    assert said[MAX_WARNINGS - 1 :] == [f"warning: step {MAX_WARNINGS - 1} is dropped", "warning: no space left"]
    assert progress.omitted_warnings == ["and 3 more warnings of this kind: step_dropped"]
    assert len(progress.warnings) == MAX_WARNINGS + 4


def test_an_early_end_is_told_when_it_happens(tmp_path: Path) -> None:
    attempt, said = AttemptDirectory(tmp_path), list[str]()
    progress = SpoolProgress(attempt, said.append)
    with closing(SpoolWriter(attempt.spool_file(0, "events"))) as events:
        events.write(EventReport(name="ended_early", message="the run ended early, after step 60 of 200"))
    progress.read()
    assert (said, progress.warnings) == (["the run ended early, after step 60 of 200"], [])


def test_the_advice_of_a_run_is_kept_for_its_end_and_is_no_warning(tmp_path: Path) -> None:
    attempt, said = AttemptDirectory(tmp_path), list[str]()
    progress = SpoolProgress(attempt, said.append)
    with (
        closing(SpoolWriter(attempt.spool_file(0, "events"))) as events,
        closing(SpoolWriter(attempt.spool_file(0, "metrics"))) as metrics,
    ):
        metrics.write(step(1, 100.0).model_copy(update={"noise_scale": 900.0}))
        assert (progress.read().noise_scale, progress.advice) == (900.0, None)
        events.write(EventReport(name="batch_advice", message="batches are useful up to about 1,024"))
    progress.read()
    assert progress.advice is not None
    assert (progress.advice.message, progress.warnings, said) == ("batches are useful up to about 1,024", [], [])
