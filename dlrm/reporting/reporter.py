"""Reports of one rank, into its spool files."""

import logging
from typing import Any

from dlrm.record import (
    AttemptDirectory,
    EvaluationReport,
    EventReport,
    Phase,
    ProgressReport,
    SpoolWriter,
    StartReport,
    StepReport,
)

log = logging.getLogger(__name__)


class Reporter:
    """Writes what this rank has to say. What concerns the whole run is said by rank 0 alone."""

    def __init__(self, attempt: AttemptDirectory, rank: int) -> None:
        self._speaks_for_all = rank == 0
        self._metrics = SpoolWriter(attempt.spool_file(rank, "metrics"))
        self._events = SpoolWriter(attempt.spool_file(rank, "events"))

    def measured(self, report: StartReport | StepReport | EvaluationReport) -> None:
        """Where the attempt begins, a step or an evaluation of the whole run."""
        if self._speaks_for_all:
            self._metrics.write(report)

    def progress(self, phase: Phase, message: str, done_fraction: float | None = None) -> None:
        """A phase of the whole run that has begun or moved."""
        if self._speaks_for_all:
            log.info("%s %s", phase, message)
            self._events.write(ProgressReport(phase=phase, done_fraction=done_fraction, message=message))

    def event(self, name: str, message: str, **details: Any) -> None:
        """Something that happened to the whole run."""
        if self._speaks_for_all:
            self.own_event(name, message, **details)

    def own_event(self, name: str, message: str, **details: Any) -> None:
        """Something that happened on this rank."""
        log.info("%s: %s", name, message)
        self._events.write(EventReport(name=name, message=message, details=details))

    def close(self) -> None:
        """The last chance of what a full disk had no room for. Raises OSError, not for a full disk."""
        for writer in (self._metrics, self._events):
            writer.close()
            if writer.num_unwritten:
                log.error("the disk is full: the last %d report(s) of %s are lost", writer.num_unwritten, writer.path)
