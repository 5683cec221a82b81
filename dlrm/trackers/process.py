"""Writes what a run reports to its trackers: `python -m dlrm.trackers.process RUN_DIRECTORY --attempt N`.

The launch process of rank 0's node starts this program once training has begun, and closes its standard input at the
end. It reads the spool files of rank 0, earlier attempts first, from where each tracker is: nothing waits for a
tracker, and nothing is lost while one cannot be reached. Its priority is low.
"""

import argparse
import hashlib
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib import import_module
from pathlib import Path

from dlrm.config import ResolvedJob, TrackersConfig, parse_document
from dlrm.record import (
    TRACKING_FAILED,
    EvaluationReport,
    EventReport,
    Outcome,
    RunDirectory,
    SpoolReader,
    SpoolWriter,
    StepReport,
    parse_whole_reports,
)
from dlrm.trackers.tracker import Figures, Position, RunEnd, TrackedRun, Tracker
from hostinfo.process_memory import end_first_when_memory_is_short
from hostinfo.stop_signals import ignore_stop_signals

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
RETRY_SECONDS, MAX_RETRY_SECONDS = 2.0, 60.0
MAX_REPORTS = 100
"""Reports that a tracker gets at a time, at most."""
_KINDS = (StepReport, EvaluationReport)
_USER = re.compile(r"//[^/@\s]+@")
"""User and password in a URI."""
CREDENTIALS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")


class ReportReader:
    """Steps and evaluations of rank 0, of the earlier attempts first, each once."""

    def __init__(self, directory: RunDirectory, number: int) -> None:
        paths = [directory.attempt(attempt).spool_file(0, "metrics") for attempt in range(1, number + 1)]
        self._readers = [SpoolReader(path) for path in paths]

    def read(self) -> list[StepReport | EvaluationReport]:
        """Return the next reports, MAX_REPORTS at most; empty if there are no more yet."""
        while True:
            lines = self._readers[0].read(MAX_REPORTS)
            reports = [report for report in parse_whole_reports(lines) if isinstance(report, _KINDS)]
            if reports or (not lines and len(self._readers) == 1):
                return reports
            if not lines:
                del self._readers[0]


class Feed(threading.Thread):
    """Thread that brings one tracker what the run reports, until the end of the attempt.

    After an error it tries again from where it was; the first one is a warning of the run.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Tracker],
        run: TrackedRun,
        reports: ReportReader,
        warn: Callable[[str], None],
    ) -> None:
        """Prepare to feed the tracker `name`. warn: called at most once, with a sentence."""
        super().__init__(name=name, daemon=True)
        self._make, self._tracked, self._reports = make, run, reports
        self._warn: Callable[[str], None] | None = warn
        self._tracker: Tracker | None = None
        self._position = Position()
        self._waiting: list[StepReport | EvaluationReport] = []
        self._end: RunEnd | None = None
        self._is_closing = threading.Event()

    def close(self, end: RunEnd) -> None:
        """Ask for the rest, with the end of the attempt."""
        self._end = end
        self._is_closing.set()

    def run(self) -> None:
        """Feed the tracker until it has all, or an error has ended the last try."""
        pause = RETRY_SECONDS
        while True:
            end = self._end if self._is_closing.is_set() else None
            try:
                tracker = self._write_new()
                if end is not None:
                    tracker.finish(end)
                    return
                pause = RETRY_SECONDS
                self._is_closing.wait(LOOK_SECONDS)
            except Exception as error:
                log.exception("%s", self.name)
                self._tell(error)
                if end is not None:
                    return
                self._is_closing.wait(pause)
                pause = min(2 * pause, MAX_RETRY_SECONDS)

    def _write_new(self) -> Tracker:
        if self._tracker is None:
            tracker = self._make()
            self._position = tracker.start(self._tracked)
            self._tracker = tracker
        while True:
            self._waiting = self._waiting or self._reports.read()
            if not self._waiting:
                return self._tracker
            position, figures = self._position, list[Figures]()
            for report in self._waiting:
                if position.is_behind(report):
                    position = position.move(report)
                    figures.append(Figures.of_report(report))
            if figures:
                self._tracker.log(figures, position)
            self._position, self._waiting = position, []

    def _tell(self, error: Exception) -> None:
        if self._warn is not None:
            text = _USER.sub("//***@", " ".join(str(error).split()))[:500]
            self._warn(f"run.trackers.{self.name} lacks figures of this run until it works: {text}")
            self._warn = None


def make_trackers(config: TrackersConfig) -> dict[str, Callable[[], Tracker]]:
    """Return by name what makes each tracker that a job uses; their packages are imported only then."""
    trackers: dict[str, Callable[[], Tracker]] = {}
    if config.tensorboard:
        trackers["tensorboard"] = lambda: import_module("dlrm.trackers.tensorboard").TensorBoard()
    if config.mlflow is not None:
        trackers["mlflow"] = lambda: import_module("dlrm.trackers.mlflow").Mlflow(config.mlflow)
    if config.wandb is not None:
        trackers["wandb"] = lambda: import_module("dlrm.trackers.weights_biases").Wandb(config.wandb)
    return trackers


def make_key(directory: RunDirectory, *, is_in_service: bool) -> str:
    """Make the text by which trackers find a run again: the id of a service's job, else a hash of where the run is."""
    if is_in_service:
        return directory.path.name
    place = f"{socket.gethostname()}:{directory.path.resolve()}"
    return hashlib.sha256(place.encode()).hexdigest()[:32]


def select_environment(resolved: ResolvedJob, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the service's credentials if its document names another MLflow server."""
    mlflow = resolved.job.run.trackers.mlflow
    is_own = mlflow is None or mlflow.uri in (None, environment.get("MLFLOW_TRACKING_URI"))
    if is_own or resolved.data_roots is None:
        return dict(environment)
    return {name: value for name, value in environment.items() if name not in CREDENTIALS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    arguments = parser.parse_args()
    # The launch process, which passes stop signals on, says when this one ends.
    ignore_stop_signals()
    end_first_when_memory_is_short()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    track(RunDirectory(arguments.run_directory), arguments.attempt)
    return 0


def track(directory: RunDirectory, number: int) -> None:
    """Feed the trackers of attempt `number` until standard input ends with its outcome."""
    attempt = directory.attempt(number)
    resolved = parse_document(ResolvedJob, directory.read_spec(number))
    kept = select_environment(resolved, os.environ)
    os.environ.clear()
    os.environ.update(kept)
    directory.trackers.mkdir(exist_ok=True)
    key = make_key(directory, is_in_service=resolved.data_roots is not None)
    run = TrackedRun.describe(resolved, key, directory.path.name, number, directory.trackers)
    lock = threading.Lock()

    def warn(message: str) -> None:
        with lock, closing(SpoolWriter(attempt.tracking_events)) as events:
            events.write(EventReport(name=TRACKING_FAILED, message=message))

    feeds = [
        Feed(name, make, run, ReportReader(directory, number), warn)
        for name, make in make_trackers(resolved.job.run.trackers).items()
    ]
    for feed in feeds:
        feed.start()
    outcome = Outcome.model_validate_json(sys.stdin.read())
    model_path = str(directory.model) if directory.model.exists() else None
    for feed in feeds:
        feed.close(RunEnd(outcome, time.time(), model_path))
    for feed in feeds:
        feed.join()


if __name__ == "__main__":
    sys.exit(main())
