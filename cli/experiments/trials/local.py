"""Runner of trials on this machine, one after another, as `dlrm train` trains them."""

import json
import resource
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from cli.experiments.trials.ended_run import (
    compute_training_seconds,
    copy_scores,
    describe_environment,
    make_result,
    read_curve,
)
from cli.experiments.trials.fields import set_absolute_paths
from cli.experiments.trials.results import TrialResult
from cli.experiments.trials.runner import Ended, ExperimentStopped, Trial
from cli.local.attempt_run import run_attempt
from cli.local.console import console_on, say
from cli.local.data_files import make_paths_absolute
from cli.local.errors import BadInputError
from cli.local.outputs import write_output
from cli.local.progress import PREPARING, ProgressLine
from cli.local.run_directory import (
    DifferentRunError,
    NewAttempt,
    SucceededError,
    create_next_attempt,
    create_run,
    require_unfinished,
)
from cli.local.run_documents import read_resolved_job
from cli.local.spool import read_reports
from cli.local.trainer import require_trainer
from dlrm.record import (
    DATA_REUSED,
    EventReport,
    Outcome,
    PreparedData,
    RunDirectory,
    RunInUseError,
    hold_run_lock,
)
from service.client import Progress

RETRY_SECONDS = 1.0
"""Seconds from one look at a run that an earlier command has left running to the next."""


class LocalRunner:
    """Runner of one trial at a time, in a run directory named by its key.

    A run that an earlier command has begun continues. It takes from its document how it is trained, such as the memory.
    """

    max_running = 1

    def __init__(self, runs: Path, job_path: Path, *, scores_in: Path | None, keeps_runs: bool) -> None:
        """Prepare to run trials. runs: directory of their runs. job_path: file that relative paths are beside.

        scores_in: directory to which scores are copied; None if they stay in the runs.
        """
        require_trainer()
        self._runs = runs
        self._job_path = job_path
        self._scores_in = scores_in
        self._keeps_runs = keeps_runs
        self._started: tuple[Trial, str] | None = None
        self._is_stop_requested = False

    def start(self, trial: Trial, label: str) -> None:
        """Take a trial, which `wait` runs. Raises ExperimentStopped."""
        if self._is_stop_requested:
            raise ExperimentStopped
        self._started = trial, label

    def wait(self) -> Sequence[Ended]:
        """Run the trial to its end. Raises ExperimentStopped, CommandError."""
        assert self._started is not None, "a trial was started"
        trial, label = self._started
        directory = self._get_directory(trial.key)
        document = self._write_document(trial)
        cpu_before = _read_cpu_seconds()
        outcome, seconds = self._run(document, directory, f"{label} {trial.cell}".strip())
        result = self._make_result(trial, directory, outcome, seconds, _read_cpu_seconds() - cpu_before)
        document.unlink(missing_ok=True)
        return [(trial, result)]

    def finish(self, keys: Iterable[str]) -> None:
        """Remove the runs of trials whose results are in the file, unless runs are kept."""
        if not self._keeps_runs:
            for key in keys:
                shutil.rmtree(self._get_directory(key).path, ignore_errors=True)

    def _run(self, document: Path, directory: RunDirectory, label: str) -> tuple[Outcome, float]:
        """Run a document, and return the outcome and the duration in seconds, without the preparation for all trials.

        For earlier attempts, and a run that had already ended, the duration is the duration of the steps alone.
        """
        try:
            started = _start(document, directory)
        except SucceededError as succeeded:
            return succeeded.outcome, compute_training_seconds(succeeded.outcome.metrics) or 0.0
        seconds, last = 0.0, time.monotonic()
        with ProgressLine() as line:
            is_terminal = console_on(stderr=True).is_terminal

            def watch(progress: Progress) -> None:
                nonlocal seconds, last
                now = time.monotonic()
                # A preparation does not count, as all trials share it.
                seconds += now - last if progress.phase != PREPARING else 0.0
                last = now
                if is_terminal:
                    line.show(label, progress)

            # Its lines are not printed: its progress and its figures are shown.
            end = run_attempt(started, lambda _: None, watch)
        if end.outcome.state == "stopped":
            raise ExperimentStopped
        self._is_stop_requested = end.is_stop_requested
        # Attempts that were stopped before are in the metrics alone.
        return end.outcome, max(seconds, compute_training_seconds(end.outcome.metrics) or 0.0)

    def _make_result(
        self, trial: Trial, directory: RunDirectory, outcome: Outcome, seconds: float, cpu_seconds: float
    ) -> TrialResult:
        is_done = outcome.state == "succeeded"
        num_attempts = len(list(directory.path.glob("attempt-*")))
        resolved = read_resolved_job(directory, directory.path)
        prepared = PreparedData.read(directory.data)
        is_whole = num_attempts == 1 and not (resolved.job.data.is_raw and _has_prepared_rows(directory))
        output = self._scores_in
        return make_result(
            trial,
            outcome.metrics,
            seconds,
            is_done=is_done,
            reason=outcome.reason,
            message=outcome.message,
            num_steps=outcome.step,
            # Earlier attempts are not counted; a preparation, which all trials share, is not this one's.
            cpu_seconds=round(cpu_seconds, 3) if is_whole and cpu_seconds > 0.0 else None,
            data_checksum=prepared and prepared.checksum,
            num_attempts=num_attempts,
            curve=read_curve(directory, num_attempts),
            decided={decision.field: decision.value for decision in resolved.decisions},
            scores=copy_scores(trial.key, directory, outcome.metrics, output) if is_done and output else None,
            environment=describe_environment(),
        )

    def _write_document(self, trial: Trial) -> Path:
        document = set_absolute_paths(trial.document, make_paths_absolute(trial.spec, self._job_path))
        path = self._runs / f"{trial.key}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"{path.parent}: {error.strerror}") from None
        write_output(path, json.dumps(document, indent=1))
        return path

    def _get_directory(self, key: str) -> RunDirectory:
        return RunDirectory((self._runs / key).resolve())


def _start(document: Path, directory: RunDirectory) -> NewAttempt:
    if not directory.spec.exists():
        # A kill may have left a directory without a document.
        shutil.rmtree(directory.path, ignore_errors=True)
        return create_run(document, directory.path, remedy="name another directory with --output")
    _wait_until_free(directory)
    # The document, and the data that it names, do not matter any more to a run that is done.
    require_unfinished(directory)
    try:
        return create_next_attempt(directory.path, document)
    except DifferentRunError as error:
        remedy = f"with these settings it is a different run: remove {directory.path}, and it starts from the beginning"
        raise BadInputError(*error.differences, remedy) from None


def _wait_until_free(directory: RunDirectory) -> None:
    """Wait for the launch process of a command that was killed: it trains on until its end."""
    is_announced = False
    while True:
        try:
            with hold_run_lock(directory):
                return
        except RunInUseError as error:
            if not is_announced:
                is_announced = True
                say(f"waiting: {error}")
            time.sleep(RETRY_SECONDS)


def _read_cpu_seconds() -> float:
    """Return the processor seconds of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _has_prepared_rows(directory: RunDirectory) -> bool:
    """Whether the first attempt of a run on raw rows has prepared them, and not found them prepared."""
    reports = read_reports(directory.attempt(1).spool_file(0, "events"))
    return not any(isinstance(report, EventReport) and report.name == DATA_REUSED for report in reports)
