"""Runner of trials on this machine, one after another, as `dlrm train` trains them."""

import json
import resource
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from cli.experiments.sweep.trial import Trial
from cli.experiments.trials.ended_run import copy_scores, describe_environment, make_result, read_curve
from cli.experiments.trials.fields import set_absolute_paths
from cli.experiments.trials.results import TrialResult
from cli.experiments.trials.run import TrialEnd, read_data_checksum, run_trial
from cli.local.data_files import make_paths_absolute
from cli.local.errors import BadInputError
from cli.local.run_documents import check_data_files, read_resolved_job
from cli.local.trainer import require_trainer
from dlrm.record import (
    DATA_REUSED,
    EventReport,
    RunDirectory,
    SpoolReader,
    parse_whole_reports,
    write_atomically,
)


class LocalRunner:
    """Runner of one trial at a time, in a run directory named by its key."""

    max_running = 1
    is_stop_requested = False

    def __init__(self, output: Path, job_path: Path, *, keeps_runs: bool) -> None:
        """Prepare to run trials. output: directory of the sweep. job_path: file that relative paths are beside."""
        require_trainer()
        self._output = output
        self._runs = output / "runs"
        self._job_path = job_path
        self._keeps_runs = keeps_runs
        self._started: tuple[Trial, str] | None = None
        self._are_files_checked = False

    def start(self, trial: Trial, label: str) -> None:
        """Take a trial, which `wait` runs."""
        self._started = trial, label

    def wait(self) -> Sequence[tuple[Trial, TrialResult]]:
        """Run the trial to its end. Raises ExperimentStopped, CommandError."""
        assert self._started is not None, "a trial was started"
        trial, label = self._started
        document = self._write_document(trial)
        if not self._are_files_checked:
            check_data_files(document)
            self._are_files_checked = True
        directory = self._get_directory(trial.key)
        cpu_before = _read_cpu_seconds()
        ended = run_trial(document, directory, {}, f"{label} {trial.cell}", is_first=True)
        cpu_seconds = _read_cpu_seconds() - cpu_before
        self.is_stop_requested = ended.is_stop_requested
        return [(trial, self._make_result(trial, directory, ended, cpu_seconds))]

    def finish(self, keys: Iterable[str]) -> None:
        """Remove the runs of trials whose results are in the file, unless runs are kept."""
        if not self._keeps_runs:
            for key in keys:
                shutil.rmtree(self._get_directory(key).path, ignore_errors=True)
                self._get_document(key).unlink(missing_ok=True)

    def _make_result(self, trial: Trial, directory: RunDirectory, end: TrialEnd, cpu_seconds: float) -> TrialResult:
        outcome, is_done = end.outcome, end.outcome.state == "succeeded"
        num_attempts = len(list(directory.path.glob("attempt-*")))
        resolved = read_resolved_job(directory, directory.path)
        is_whole = num_attempts == 1 and not (resolved.job.data.is_raw and _has_prepared_rows(directory))
        return make_result(
            trial,
            outcome.metrics,
            end.seconds,
            is_done=is_done,
            reason=outcome.reason,
            message=outcome.message,
            num_steps=outcome.step,
            # Earlier attempts are not counted; a preparation, which all trials share, is not this one's.
            cpu_seconds=round(cpu_seconds, 3) if is_whole and cpu_seconds > 0.0 else None,
            data_checksum=read_data_checksum(directory),
            num_attempts=num_attempts,
            curve=read_curve(directory, num_attempts),
            decided={decision.field: decision.value for decision in resolved.decisions},
            scores=copy_scores(trial.key, directory, outcome.metrics, self._output) if is_done else None,
            environment=describe_environment(),
        )

    def _write_document(self, trial: Trial) -> Path:
        document = set_absolute_paths(trial.document, make_paths_absolute(trial.spec, self._job_path))
        path = self._get_document(trial.key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(document, indent=1))
        except OSError as error:
            raise BadInputError(f"{path}: {error.strerror}") from None
        return path

    def _get_document(self, key: str) -> Path:
        return self._runs / f"{key}.json"

    def _get_directory(self, key: str) -> RunDirectory:
        return RunDirectory((self._runs / key).resolve())


def _read_cpu_seconds() -> float:
    """Return the processor seconds of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _has_prepared_rows(directory: RunDirectory) -> bool:
    """Whether the first attempt of a run on raw rows has prepared them, and not found them prepared."""
    reader = SpoolReader(directory.attempt(1).spool_file(0, "events"))
    while lines := reader.read():
        reports = parse_whole_reports(lines)
        if any(isinstance(report, EventReport) and report.name == DATA_REUSED for report in reports):
            return False
    return True
