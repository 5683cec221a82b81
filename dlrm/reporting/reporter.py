"""Reports of one rank, written to its spool files; events of processes beside the ranks are passed on there."""

import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from dlrm.record import (
    UPLOAD_EVENTS,
    UPLOADS_LEFT,
    AttemptDirectory,
    EvaluationReport,
    EventReport,
    Phase,
    ProgressReport,
    SpoolReader,
    SpoolWriter,
    StartReport,
    StepReport,
    parse_report,
)
from dlrm.reporting.metric_log import MetricLog

log = logging.getLogger(__name__)

NODE_VARIABLE = "DLRM_NODE"
"""Environment variable with the number of a rank's node, by which the node's uploading process is found."""


class Reporter:
    """Writer of the reports of this rank. Only rank 0 reports on the whole run."""

    def __init__(self, attempt: AttemptDirectory, rank: int) -> None:
        self._is_first_rank = rank == 0
        self._metric_log = MetricLog()
        self._metrics = SpoolWriter(attempt.spool_file(rank, "metrics"))
        self._events = SpoolWriter(attempt.spool_file(rank, "events"))

    def metric(self, report: StartReport | StepReport | EvaluationReport) -> None:
        """Report the start of the attempt, a step or an evaluation of the whole run; the log gets evaluations, and a
        line about steps from time to time."""
        if not self._is_first_rank:
            return
        self._metrics.write(report)
        if isinstance(report, StepReport):
            self._metric_log.add_step(report)
        elif isinstance(report, EvaluationReport):
            self._metric_log.add_evaluation(report)

    def progress(
        self, phase: Phase, message: str, done_fraction: float | None = None, eta_seconds: float | None = None
    ) -> None:
        """Report that a phase of the whole run has started, or its progress. eta_seconds: to the end of the run."""
        if self._is_first_rank:
            log.info("%s %s", phase, message)
            report = ProgressReport(phase=phase, done_fraction=done_fraction, eta_seconds=eta_seconds, message=message)
            self._events.write(report)

    def event(self, name: str, message: str, **details: Any) -> None:
        """Report something that happened to the whole run."""
        if self._is_first_rank:
            self.rank_event(name, message, **details)

    def rank_event(self, name: str, message: str, **details: Any) -> None:
        """Report something that happened on this rank."""
        log.info("%s: %s", name, message)
        self._events.write(EventReport(name=name, message=message, details=details))

    def close(self) -> None:
        """Write the reports that waited for space on the disk, and close the files. Raises OSError, except for a full
        disk."""
        for writer in (self._metrics, self._events):
            writer.close()
            if writer.num_unwritten:
                log.error("the disk is full: the last %d report(s) of %s are lost", writer.num_unwritten, writer.path)


class EventRelay:
    """Passes the events of processes beside the ranks on to the reports of a rank, each once."""

    def __init__(self, files: Iterable[Path], reporter: Reporter, num_told: int = 0) -> None:
        """Start after the first `num_told` events of each of `files`, which may be absent yet."""
        self._readers = [SpoolReader(file, num_told) for file in files]
        self._reporter = reporter

    def tell_new(self) -> None:
        """Report the events that have come since the last call."""
        for report in (parse_report(line) for reader in self._readers for line in reader.read()):
            if isinstance(report, EventReport):
                self._reporter.rank_event(report.name, report.message, **report.details)


def count_told(attempt: AttemptDirectory, rank: int, names: Collection[str] = UPLOAD_EVENTS - {UPLOADS_LEFT}) -> int:
    """Count the events with these names that `rank` has passed on; by default they are events of uploads."""
    reports = map(parse_report, SpoolReader(attempt.spool_file(rank, "events")).read(max_lines=10**9))
    return sum(isinstance(report, EventReport) and report.name in names for report in reports)
