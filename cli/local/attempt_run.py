"""One attempt of a run on this machine: its launch process, watched until it ends."""

import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from cli.local.run_directory import NewAttempt
from cli.local.spool import SpoolProgress
from cli.local.trainer import make_module_command
from dlrm.record import AttemptDirectory, EndReason, Outcome
from hostinfo.child import run_in_session
from hostinfo.node_place import NodePlace
from hostinfo.stop_signals import defer_stop_signals
from service.client import Progress

POLL_SECONDS = 0.2
"""Seconds between two calls of `watch`."""
MAX_LOG_BYTES = 1 << 16
"""Bytes at the end of a log in which its last line is looked for."""


@dataclass(frozen=True)
class FinishedAttempt:
    """End of an attempt."""

    code: int
    """Exit code of the launch process."""
    outcome: Outcome
    reported: SpoolProgress
    """Everything that was reported."""
    is_stop_requested: bool
    """Whether SIGINT or SIGTERM came while it ran, perhaps too late to stop it."""


def run_attempt(
    started: NewAttempt,
    on_line: Callable[[str], None],
    on_progress: Callable[[Progress], None],
    place: NodePlace | None = None,
) -> FinishedAttempt:
    """Run the attempt to its end. SIGINT and SIGTERM stop it after a checkpoint.

    on_line: called with each line that the user should see. on_progress: called with the progress, several times a
    second. place: of this machine among several that run the job; None if it is the only one.
    """
    attempt = started.attempt
    options = [] if place is None else place.options
    command = make_module_command(
        "dlrm.launch", [str(started.directory.path), "--attempt", str(started.number), *options]
    )
    progress = SpoolProgress(attempt, on_line, started.checkpoint and started.checkpoint.num_steps)
    code, is_stop_requested = run_and_watch(command, attempt.launch_log, lambda: on_progress(progress.read()))
    for count in progress.omitted_warnings:
        on_line(count)
    outcome = Outcome.read(attempt.outcome) or _make_crash_outcome(attempt, code)
    return FinishedAttempt(code, outcome, progress, is_stop_requested)


def run_and_watch(command: Sequence[str], log: Path, watch: Callable[[], None]) -> tuple[int, bool]:
    """Run the launch process `command` to its end, with its output appended to `log`.

    `watch` is called every POLL_SECONDS, and once at the end. SIGINT and SIGTERM are passed on as SIGTERM, which stops
    the run after a checkpoint; this process waits for that. Returns the exit code, and whether such a signal came: too
    late if the run has succeeded or failed all the same.
    """
    with ExitStack() as started:
        with defer_stop_signals():
            output = started.enter_context(log.open("ab"))
            child, received = started.enter_context(run_in_session(command, stdout=output, stderr=output))
        while True:
            try:
                code = child.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                watch()
            else:
                watch()
                return code, bool(received)


def _make_crash_outcome(attempt: AttemptDirectory, code: int) -> Outcome:
    """Make the outcome of a launch process that wrote none: it was killed, or another one holds the run directory."""
    end = b""
    with suppress(FileNotFoundError), attempt.launch_log.open("rb") as file:
        file.seek(max(0, attempt.launch_log.stat().st_size - MAX_LOG_BYTES))
        end = file.read()
    # A crash of the machine leaves NUL at the end of a file.
    lines = end.decode(errors="replace").replace("\0", "").strip().splitlines()
    log = f"; its last log line: {lines[-1]}" if lines else ""
    message = f"the launch process ended with exit code {code} and wrote no outcome{log}"
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)
