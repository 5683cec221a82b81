"""The arguments of a launch process, and the parts that it has from its beginning to its end."""

import logging
from dataclasses import dataclass
from pathlib import Path

from dlrm.launch.attempt import parse_spec
from dlrm.launch.reports import ServiceReports
from dlrm.launch.stopper import Stopper
from dlrm.record import AttemptDirectory, Outcome, RunDirectory, write_atomically
from hostinfo.node_place import NodePlace

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Invocation:
    """One start of the launch process of a node."""

    directory: RunDirectory
    number: int
    """Number of the attempt; nodes other than node 0 learn it from node 0."""
    place: NodePlace | None
    """Place among several nodes; None if there is one."""
    run_store: str | None
    """URI below which the run is kept, as the command line has it."""
    document: Path | None
    """File with the document of a run that has none yet."""
    has_push_target: bool
    """Whether the command line names a service to which this attempt reports."""
    stopper: Stopper
    reports: ServiceReports

    @property
    def attempt(self) -> AttemptDirectory:
        return self.directory.attempt(self.number)

    def place_document(self) -> None:
        """Give a run that has no document, neither here nor in its bucket, the one that was named.

        Raises ConfigError if that is damaged, and OSError.
        """
        if self.document is not None and not self.directory.spec.exists():
            content = self.document.read_bytes()
            parse_spec(content)
            write_atomically(self.directory.spec, content)

    def enter_attempt(self, attempt: AttemptDirectory) -> None:
        """Leave stop requests and report in the directory of `attempt` from now on."""
        self.stopper.enter_attempt(attempt)
        self.reports.enter_attempt(attempt, self.place.node if self.place else 0)

    def finish(self, outcome: Outcome) -> int:
        """Tell how the attempt has ended, and return the exit code of its outcome."""
        log.info("%s: %s %s", outcome.state, outcome.reason, outcome.message)
        self.reports.finish(outcome)
        return outcome.exit_code
