"""Starts the ranks of one node and reports how they ended: `python -m dlrm.launch RUN_DIRECTORY --attempt N`.

RUN_DIRECTORY holds `spec.json`, a resolved job. Ranks run under torch's elastic launch, which exits with 1 after any
failure; this process exits with the code of `outcome.json` instead: 0 done, 75 stopped on request after a checkpoint,
64 bad configuration or data, 1 a failure that another attempt may avoid. SIGTERM or SIGINT, at any moment and any
number of times, stops the run after a checkpoint of one step that the ranks agree on. One launch process at a time
works in a run directory: a second one ends at once with code 1, and leaves no outcome.
"""

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from dlrm.config import ConfigError, ResolvedJob, translate_errors
from dlrm.launch.decide import decide_open_fields
from dlrm.launch.environment import MixedInstallError, NoDeviceError, check_devices, check_environment
from dlrm.launch.outcomes import list_rank_ends, make_failed_outcome, make_stopped_outcome
from dlrm.launch.prepare import prepare_data
from dlrm.launch.ranks import run_ranks, start_import
from dlrm.launch.stopper import Stopper
from dlrm.record import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    AttemptDirectory,
    EndReason,
    Outcome,
    RunDirectory,
    RunInUseError,
    hold_run_lock,
    sync_directory,
    write_rank_ends,
)
from dlrm.reporting.push import Pusher

log = logging.getLogger(__name__)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dlrm.launch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, default=1, help="number of this attempt, counted from 1")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s launch %(message)s")
    # Otherwise httpx logs every push.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    directory = RunDirectory(arguments.run_directory.resolve())
    if not directory.path.is_dir():
        log.error("%s: no such run directory", directory.path)
        return EXIT_BAD_INPUT
    try:
        with hold_run_lock(directory):
            return _run_attempt(directory, arguments.attempt)
    except RunInUseError as error:
        # No outcome is written: the running process may be at this same attempt.
        log.error("%s", error)
        return EXIT_FAILED


def _run_attempt(directory: RunDirectory, number: int) -> int:
    """Run the attempt, unless it has already ended, and return the exit code of its outcome."""
    attempt = directory.attempt(number)
    if earlier := Outcome.read(attempt.outcome):
        log.error("attempt %d has already ended, %s: %s", number, earlier.state, earlier.message)
        return earlier.exit_code
    try:
        attempt.create()
    except OSError as error:
        log.error("attempt %d cannot start: %s", number, error)
        return EXIT_FAILED
    stopper = Stopper(attempt)
    stopper.listen()
    try:
        outcome = _prepare_and_train(directory, number, stopper)
    except Exception as error:
        log.exception("the launch process failed")
        outcome = Outcome(
            state="failed",
            reason=EndReason.WORKER_CRASHED,
            message=f"the launch process failed: {type(error).__name__}: {' '.join(str(error).split())}"[:2000],
        )
    try:
        # Keeps the outcome of a rank that wrote its own.
        outcome.write_first(attempt.outcome)
    except OSError:
        log.exception("the outcome cannot be written; only the exit code reports it")
    final = Outcome.read(attempt.outcome) or outcome
    log.info("%s: %s %s", final.state, final.reason, final.message)
    return final.exit_code


def _prepare_and_train(directory: RunDirectory, number: int, stopper: Stopper) -> Outcome:
    """Run the attempt, and return the outcome that counts where neither a rank nor the preparation has written one."""
    attempt = directory.attempt(number)
    try:
        check_environment()
        resolved = _read_spec(directory.find_spec(number))
        check_devices(resolved.job.resources.gpus_per_worker * resolved.job.resources.workers_per_node)
    except (MixedInstallError, NoDeviceError, OSError, ConfigError) as error:
        return Outcome(state="failed", reason=EndReason.BAD_INPUT, message=str(error))
    start_import()
    with _push_reports(attempt, resolved.job.resources.world_size):
        if resolved.job.data.synthetic is None and (outcome := prepare_data(directory, number)):
            return outcome
        _take_over_spec(directory, attempt)
        resolved = decide_open_fields(directory, resolved)
        failures = run_ranks(directory, resolved, number, stopper)
    if failures is None:
        return make_stopped_outcome("stopped before the ranks were started")
    if failures:
        try:
            write_rank_ends(attempt.rank_ends, list_rank_ends(attempt, failures))
        except OSError:
            log.exception("the ends of the ranks cannot be written; the outcome names the first one")
    return make_failed_outcome(attempt, failures)


def _take_over_spec(directory: RunDirectory, attempt: AttemptDirectory) -> None:
    """Replace the run's document by the attempt's own, where it has one.

    Called once the run directory is locked and the rows are found: an attempt that is too late, or has other rows,
    changes nothing for later attempts.
    """
    if attempt.spec.exists():
        attempt.spec.replace(directory.spec)
        sync_directory(directory.path)


def _read_spec(spec: Path) -> ResolvedJob:
    try:
        return ResolvedJob.model_validate_json(spec.read_bytes())
    except ValidationError as error:
        raise ConfigError(translate_errors(error, ResolvedJob)) from None


@contextmanager
def _push_reports(attempt: AttemptDirectory, world_size: int) -> Iterator[None]:
    """Push the ranks' reports to the service during the block, where a service receives them."""
    if not attempt.push_target.exists():
        yield
        return
    pusher = Pusher(attempt, world_size)
    pusher.start()
    try:
        yield
    finally:
        pusher.close()
