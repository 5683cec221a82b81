"""Programs that a rank starts in processes of their own, so that neither memory nor a crash of theirs is its own."""

import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from dlrm.launch.child import make_child_command
from dlrm.launch.outcomes import describe_exit
from dlrm.record import EXIT_DONE
from dlrm.train.stop_request import StopRequest
from hostinfo.stop_signals import STOP_SIGNALS

POLL_SECONDS = 0.05
_STOPPED = "was stopped on request"


@dataclass(frozen=True)
class ProgramEnd:
    """End of a program."""

    failure: str | None = None
    """Cause of an incomplete result, as the rest of a sentence; None if the program has done its work."""

    @property
    def is_stopped(self) -> bool:
        """Whether a request to stop has ended it."""
        return self.failure == _STOPPED


def run_program(
    module: str,
    arguments: Sequence[str],
    stop: StopRequest,
    *,
    output: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    max_seconds: float = math.inf,
) -> ProgramEnd:
    """Run the program `module` to its end, and return how it ended; kill it once `stop` is requested.

    Main thread only. output: file for what it prints; None: the log of this rank, where its errors go in any case.
    environment: None for that of this process. max_seconds: time after which it is killed. Raises OSError if it
    cannot be started.
    """
    command = [sys.executable, *make_child_command(module, arguments)]
    deadline = time.monotonic() + max_seconds
    process = subprocess.Popen(command, stdout=output, env=environment)
    try:
        while True:
            try:
                return _describe_end(process.wait(POLL_SECONDS), stop)
            except subprocess.TimeoutExpired:
                if stop.is_requested:
                    return ProgramEnd(_STOPPED)
                if time.monotonic() > deadline:
                    return ProgramEnd(f"was ended after {max_seconds:.0f} seconds")
    finally:
        process.kill()
        process.wait()


def _describe_end(code: int, stop: StopRequest) -> ProgramEnd:
    if code == EXIT_DONE:
        return ProgramEnd()
    # A signal to all processes at once, as of a terminal, may reach the program before this process.
    if stop.is_requested or -code in STOP_SIGNALS:
        return ProgramEnd(_STOPPED)
    if code < 0:
        return ProgramEnd(describe_exit(code))
    return ProgramEnd(f"ended with exit code {code}; see the log of rank 0")
