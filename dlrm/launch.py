"""Starts the ranks of one node and says how they ended: `python -m dlrm.launch RUN_DIRECTORY --attempt N`.

RUN_DIRECTORY holds `spec.json`, a resolved job. Ranks run under torch's elastic launch, which answers 1 to everything
that goes wrong; this process answers with the code of `outcome.json` instead: 0 done, 75 stopped on request after a
checkpoint, 64 bad configuration or data, 1 anything that may go better another time. SIGTERM stops the run after a
checkpoint of one agreed step; a second one changes nothing.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import psutil
from pydantic import ValidationError

from dlrm.config import ConfigError, ResolvedJob, field_errors
from dlrm.record import EXIT_DONE, AttemptDirectory, EndReason, Outcome, RunDirectory
from dlrm.reporting.push import Pusher
from sharding.environment import MixedInstallError, NoDeviceError, check_devices, check_environment

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

log = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT_SECONDS = 300
"""How long the other ranks may take to end once one has failed or stopped; then they are killed."""
SAME_MOMENT_SECONDS = 1.0
"""Failures so close together may be seen in another order than they happened."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--attempt", type=int, default=1, help="number of this attempt, counted from 1")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s launch %(message)s")
    # It would tell of every push.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    directory = RunDirectory(arguments.run_directory.resolve())
    attempt = directory.attempt(arguments.attempt)
    stopper = Stopper(attempt)
    stopper.listen()
    attempt.create()
    try:
        check_environment()
        resolved = _read_spec(directory)
        check_devices(resolved.job.resources.gpus_per_worker * resolved.job.resources.workers_per_node)
    except (MixedInstallError, NoDeviceError, OSError, ConfigError) as error:
        return _end(attempt, Outcome(state="failed", reason=EndReason.BAD_INPUT, message=str(error)))
    with _pushed_reports(attempt, resolved.job.resources.world_size):
        if resolved.job.data.synthetic is None and (ended := _prepare(directory, arguments.attempt, stopper)):
            return _end(attempt, ended)
        failures = _run_ranks(directory, resolved, arguments.attempt)
    return _end(attempt, _outcome_without_record(attempt, failures, stopper))


class Stopper:
    """Passes a request to stop on to every rank; they agree on the step themselves."""

    def __init__(self, attempt: AttemptDirectory) -> None:
        self._attempt = attempt

    @property
    def is_requested(self) -> bool:
        return self._attempt.stop_request.exists()

    def listen(self) -> None:
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGINT, self._pass_on)

    def _pass_on(self, signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # The file first: a rank that starts too late for the signal finds it.
        self._attempt.create()
        self._attempt.stop_request.touch()
        for child in psutil.Process().children():
            child.send_signal(signal.SIGTERM)


def _read_spec(directory: RunDirectory) -> ResolvedJob:
    try:
        return ResolvedJob.model_validate_json(directory.spec.read_bytes())
    except ValidationError as error:
        raise ConfigError(field_errors(error, ResolvedJob)) from None


def _prepare(directory: RunDirectory, number: int, stopper: Stopper) -> Outcome | None:
    """Have the raw rows prepared in a process of its own; the outcome where it ends the attempt."""
    attempt = directory.attempt(number)
    command = [sys.executable, "-u", "-m", "dlrm.preparation", str(directory.path), "--attempt", str(number)]
    with attempt.rank_log(0).open("ab") as output:
        code = subprocess.Popen(command, stdout=output, stderr=output).wait()
    if stopper.is_requested:
        return Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, message="stopped while preparing the data")
    if code == EXIT_DONE:
        return None
    message = f"the preparation of the data {_how_it_ended(code)}"
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)


def _run_ranks(directory: RunDirectory, resolved: ResolvedJob, attempt: int) -> "dict[int, ProcessFailure]":
    """Run all ranks to their end; the failures of those that were not well."""
    # Late: torch takes seconds, and a wrong document is told at once.
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    resources = resolved.job.resources
    os.environ["OMP_NUM_THREADS"] = str(resources.threads_per_worker)
    os.environ["DLRM_DEVICE"] = "cuda" if resources.gpus_per_worker else "cpu"
    # One node: its ranks need no name of the machine that resolves, and no network.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=resources.workers_per_node,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
        # SIGTERM is ours: the ranks stop after a checkpoint instead of being torn down.
        signals_to_handle="SIGQUIT",
        shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS,
    )
    command = ["-u", "-m", "dlrm.worker", str(directory.path), "--attempt", str(attempt)]
    try:
        elastic_launch(config, sys.executable)(*command)
    except ChildFailedError as error:
        return error.failures
    return {}


def _outcome_without_record(
    attempt: AttemptDirectory, failures: "dict[int, ProcessFailure]", stopper: Stopper
) -> Outcome:
    """The outcome where no rank wrote one."""
    was_early = all(failure.exitcode == -signal.SIGTERM for failure in failures.values())
    if stopper.is_requested and was_early:
        # The signal came before the ranks could take it.
        return Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, message="stopped before the first step")
    if not failures:
        message = "every rank ended well, and none wrote an outcome"
        return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)
    rank = _first_failed(failures)
    message = _what_was_seen(attempt, rank, failures[rank].exitcode)
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)


def _first_failed(failures: "dict[int, ProcessFailure]") -> int:
    """The rank that failed first; at the same moment, one that a signal killed: the others lost it."""
    first = min(failure.timestamp for failure in failures.values())
    early = [rank for rank, failure in failures.items() if failure.timestamp <= first + SAME_MOMENT_SECONDS]
    return min(early, key=lambda rank: (failures[rank].exitcode >= 0, failures[rank].timestamp))


def _what_was_seen(attempt: AttemptDirectory, rank: int, exit_code: int) -> str:
    said = attempt.rank_error(rank)
    if exit_code >= 0 and said.exists():
        return f"rank {rank} ended with exit code {exit_code}: {said.read_text()}"
    return f"rank {rank} {_how_it_ended(exit_code)}"


def _how_it_ended(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}: its log tells more"
    hint = "; often the kernel's out-of-memory killer" if -exit_code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-exit_code).name}{hint}"


def _end(attempt: AttemptDirectory, outcome: Outcome) -> int:
    """Leave `outcome` unless a rank wrote its own; answer with the code of whichever stands."""
    outcome.write_first(attempt.outcome)
    standing = Outcome.read(attempt.outcome) or outcome
    log.info("%s: %s %s", standing.state, standing.reason, standing.message)
    return standing.exit_code


@contextmanager
def _pushed_reports(attempt: AttemptDirectory, world_size: int) -> Iterator[None]:
    """Push the ranks' reports to the service where one listens."""
    if not attempt.push_target.exists():
        yield
        return
    pusher = Pusher(attempt, world_size)
    pusher.start()
    try:
        yield
    finally:
        pusher.close()


if __name__ == "__main__":
    sys.exit(main())
