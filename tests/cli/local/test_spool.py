"""Progress of a run, read from the reports of its rank 0."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.local.console import MAX_WARNINGS
from cli.local.progress import ProgressLine, describe_progress
from cli.local.spool import SpoolProgress
from dlrm.record import (
    AttemptDirectory,
    EventReport,
    ProgressReport,
    SpoolWriter,
    StartReport,
    StepReport,
)
from tests.made_reports import make_evaluation, make_step


class Spool:
    """Reports of rank 0, and what a command makes of them."""

    def __init__(self, path: Path, num_steps: int | None = None) -> None:
        attempt = AttemptDirectory(path)
        self.said: list[str] = []
        self.progress = SpoolProgress(attempt, self.said.append, num_steps)
        self._events = SpoolWriter(attempt.spool_file(0, "events"))
        self._metrics = SpoolWriter(attempt.spool_file(0, "metrics"))

    def report(self, *reports: Any) -> None:
        for report in reports:
            is_event = isinstance(report, EventReport | ProgressReport)
            (self._events if is_event else self._metrics).write(report)

    def report_events(self, events: Iterable[tuple[str, str]]) -> None:
        self.report(*(EventReport(name=name, message=message) for name, message in events))

    def close(self) -> None:
        self._events.close()
        self._metrics.close()


@contextmanager
def spool_in(path: Path, num_steps: int | None = None) -> Iterator[Spool]:
    spool = Spool(path, num_steps)
    try:
        yield spool
    finally:
        spool.close()


def step(number: int) -> StepReport:
    return make_step(number, num_steps=10, num_samples=100 * number, loss=0.5)


def test_progress_is_what_rank_0_has_reported_so_far(tmp_path: Path) -> None:
    with spool_in(tmp_path) as spool:
        assert spool.progress.read().phase == "starting"
        spool.report(ProgressReport(phase="preparing", done_fraction=0.25, message="reading: 9 rows/s"))
        seen = spool.progress.read()
        assert (seen.phase, seen.done_fraction, describe_progress(seen)) == ("preparing", 0.25, "reading: 9 rows/s")
        spool.report(ProgressReport(phase="training"))
        seen = spool.progress.read()
        assert (seen.done_fraction, describe_progress(seen)) == (None, "")
        spool.report(step(1), step(2))
        seen = spool.progress.read()
        assert (seen.phase, seen.step, seen.done_fraction) == ("training", 2, 0.2)
        assert seen.eta_seconds == pytest.approx(8.0)
        spool.report(make_evaluation(2, auc=0.75))
        text = describe_progress(spool.progress.read())
        assert text == "step 2/10 · loss 0.5000 · AUC 0.7500 · 100 samples/s · 8 s left"


def test_every_line_has_the_auc_of_the_newest_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    with spool_in(tmp_path) as spool, ProgressLine() as line:

        def show() -> None:
            seen = spool.progress.read()
            line.show(seen.phase or "", seen)

        spool.report(ProgressReport(phase="training"))
        for number in (5, 10):
            spool.report(step(number), ProgressReport(phase="evaluating", message=f"after step {number}"))
            show()
            spool.report(make_evaluation(number, auc=0.65 + 0.01 * number))
            show()
    lines = [line.split(" · ") for line in capsys.readouterr().err.splitlines()]
    aucs = [(figures[0].split()[-1], [figure for figure in figures if "AUC" in figure]) for figures in lines]
    assert aucs == [("5/10", ["AUC 0.7000"]), ("10/10", []), ("10/10", ["AUC 0.7500"])]


def test_a_run_that_goes_on_is_shown_from_where_it_goes_on(tmp_path: Path) -> None:
    with spool_in(tmp_path, num_steps=10) as spool:
        spool.report_events([("checkpoint_passed_over", "step 8 is skipped: it is incomplete")])
        spool.progress.read()
        spool.report_events([("resumed", "resumes at step 6 of 10")])
        spool.report(ProgressReport(phase="training"), StartReport(step=6, evaluated_step=5))
        seen = spool.progress.read()
        assert (seen.phase, seen.done_fraction, describe_progress(seen)) == ("training", 0.6, "step 6/10")
        spool.report(step(7))
        assert spool.progress.read().eta_seconds == pytest.approx(3.0)
    assert spool.progress.warnings == ["step 8 is skipped: it is incomplete"]
    assert spool.said == ["warning: step 8 is skipped: it is incomplete", "resumes at step 6 of 10"]


def test_a_run_that_resumes_where_its_batch_grows_has_done_its_share_of_the_samples(tmp_path: Path) -> None:
    """Six of ten steps have made 100 of the 1,000 samples."""
    with spool_in(tmp_path, num_steps=10) as spool:
        start = StartReport(step=6, evaluated_step=5, num_samples=100, num_run_samples=1000, global_size=20)
        spool.report(start)
        assert spool.progress.read().done_fraction == 0.1


@pytest.mark.parametrize(("num_steps", "num_lines"), [(None, 0), (10, 1)])
def test_a_run_whose_checkpoints_are_all_damaged_is_said_to_begin_from_the_start(
    tmp_path: Path, num_steps: int | None, num_lines: int
) -> None:
    with spool_in(tmp_path, num_steps) as spool:
        spool.report(StartReport(step=0, evaluated_step=0))
        assert spool.progress.read().step is None
        assert spool.said == ["starts from the beginning: every checkpoint is damaged"] * num_lines


def test_of_many_warnings_of_one_kind_the_first_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    with spool_in(tmp_path) as spool:
        spool.report_events(("step_dropped", f"step {number} is dropped") for number in range(MAX_WARNINGS + 3))
        spool.report_events([("checkpoint_failed", "no space left")])
        spool.progress.read()
    last = f"warning: step {MAX_WARNINGS - 1} is dropped"
    assert spool.said[MAX_WARNINGS - 1 :] == [last, "warning: no space left"]
    assert spool.progress.omitted_warnings == ["and 3 more warnings of this kind: step_dropped"]
    assert len(spool.progress.warnings) == MAX_WARNINGS + 4


@pytest.mark.parametrize(
    ("name", "said", "warnings"),
    [("plan", [], []), ("few_steps", ["warning: a"], ["a"]), ("ended_early", ["a"], []), ("batch_advice", [], [])],
)
def test_what_people_should_see_is_kept_apart_from_what_is_merely_noted(
    tmp_path: Path, name: str, said: list[str], warnings: list[str]
) -> None:
    with spool_in(tmp_path) as spool:
        spool.report(step(1).model_copy(update={"noise_scale": 900.0}))
        spool.report_events([(name, "a")])
        assert spool.progress.read().noise_scale == 900.0
    assert (spool.said, spool.progress.warnings) == (said, warnings)
    assert (spool.progress.advice and spool.progress.advice.message) == ("a" if name == "batch_advice" else None)


def test_work_after_the_last_step_is_shown_with_what_it_does_and_its_remaining_time(tmp_path: Path) -> None:
    with spool_in(tmp_path) as spool:
        message = "comparing the model with LightGBM: tree 9 of at most 500; then writing the model"
        spool.report(step(10))
        spool.report(ProgressReport(phase="finishing", done_fraction=0.4, eta_seconds=30.0, message=message))
        seen = spool.progress.read()
        assert seen.done_fraction == 0.4
        assert describe_progress(seen) == f"about 30 s left · {message}"
