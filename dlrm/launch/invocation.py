"""One start of a launch process: its command line, and the parts that it has from its beginning to its end."""

import argparse
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dlrm.config import ResolvedJob, parse_document
from dlrm.launch.attempt import make_given_up_outcome, run_part
from dlrm.launch.nodes.state import NodeResult
from dlrm.launch.outcomes import make_result
from dlrm.launch.reports import ServiceReports
from dlrm.launch.stopper import Stopper
from dlrm.launch.watchdog import Watchdog
from dlrm.record import RUN_STORE_VARIABLE, AttemptDirectory, Outcome, PushTarget, RunDirectory, write_atomically
from hostinfo.node_place import NodePlace, find_place

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
        """Give a run the named document if it has none, neither here nor in its bucket.

        Raises ConfigError if the document is damaged, and OSError.
        """
        if self.document is not None and not self.directory.spec.exists():
            content = self.document.read_bytes()
            parse_document(ResolvedJob, content)
            write_atomically(self.directory.spec, content)

    def enter_attempt(self, attempt: AttemptDirectory) -> None:
        """Leave stop requests and report in the directory of `attempt` from now on."""
        self.stopper.enter_attempt(attempt)
        self.reports.enter_attempt(attempt, self.place.node if self.place else 0)

    def finish(self, outcome: Outcome) -> int:
        """Report how the attempt has ended, and return the exit code of its outcome."""
        log.info("%s: %s %s", outcome.state, outcome.reason, outcome.message)
        self.reports.finish(outcome)
        return outcome.exit_code

    def run_watched(self, number: int, watchdog: Watchdog, conclude: Callable[[NodeResult], Outcome]) -> int:
        """Run this node's part of attempt `number`, while a thread watches its ranks and the other nodes.

        conclude: settles the outcome. Returns its exit code; where the main thread does not come back, the thread that
        watches concludes, and this process ends at once.
        """
        is_concluding = threading.Lock()

        def conclude_for_stuck() -> None:
            if is_concluding.acquire(blocking=False):
                log.error("the launch process does not come back; it ends without waiting any longer")
                result = make_result(make_given_up_outcome(watchdog), is_cause=watchdog.silent_rank is not None)
                code = self.finish(conclude(result))
                logging.shutdown()
                os._exit(code)

        watchdog.start(conclude_for_stuck)
        result = run_part(self.directory, number, self.stopper, watchdog, self.reports)
        watchdog.close()
        # Never both: the one that comes later waits for the end of the process.
        is_concluding.acquire()
        outcome = conclude(result)
        if watchdog.tracking is not None:
            watchdog.tracking.close(outcome)
        return self.finish(outcome)


def parse_arguments(description: str) -> argparse.Namespace:
    """Parse the command line. description: of the program, for `--help`."""
    parser = argparse.ArgumentParser(
        prog="python -m dlrm.launch", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, default=1, help="number of this attempt, counted from 1")
    parser.add_argument("--node-rank", type=int, metavar="I", help="number of this machine, 0 on the first one")
    parser.add_argument("--rendezvous", metavar="HOST:PORT", help="address of the first machine, where all nodes meet")
    parser.add_argument(
        "--run-store",
        metavar="URI",
        help="s3://bucket/prefix or gs://bucket/prefix, where the run is kept too, below its directory's name; "
        f"default: {RUN_STORE_VARIABLE}",
    )
    parser.add_argument("--document", type=Path, metavar="FILE", help="resolved document of a run that has none yet")
    parser.add_argument(
        "--push-target",
        type=Path,
        metavar="FILE",
        help="address and token to push reports with; default: attempt-N/push.json",
    )
    return parser.parse_args()


class UsageError(Exception):
    """Error of an option, or of a run directory that is not there."""


def make_invocation(arguments: argparse.Namespace) -> Invocation:
    """Make the invocation that the command line describes. Raises NodePlaceError, and UsageError."""
    target: Path | None = arguments.push_target
    if target is not None:
        try:
            PushTarget.read(target)
        except (OSError, ValueError) as error:
            raise UsageError(f"--push-target {target}: {' '.join(str(error).split())}") from None
    stopper = Stopper()
    return Invocation(
        directory=RunDirectory(arguments.run_directory.resolve()),
        number=arguments.attempt,
        place=find_place(arguments.node_rank, arguments.rendezvous, os.environ),
        run_store=arguments.run_store,
        document=arguments.document,
        has_push_target=target is not None,
        stopper=stopper,
        reports=ServiceReports(target, lambda: stopper.is_requested, partial(_stop_given_up, stopper)),
    )


def _stop_given_up(stopper: Stopper) -> None:
    """Stop an attempt that the service has given up, as where its machine was cut off: another one may be waiting."""
    log.error("the service has given this attempt up: it stops after a checkpoint")
    stopper.pass_on()


def prepare_directory(path: Path, arguments: argparse.Namespace) -> None:
    """Make the run directory where it may be a new one. Raises UsageError if there is none."""
    # One that was lost is made again from the bucket, and with a target or a document of its own a run may begin here.
    is_new = arguments.document or arguments.push_target or arguments.run_store or os.environ.get(RUN_STORE_VARIABLE)
    if is_new:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
    if not path.is_dir():
        raise UsageError(f"{path}: no such run directory")
