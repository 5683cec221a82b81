"""Start of the training program as a child process, so that the code of the service never imports torch."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from cli.local.errors import CommandError
from hostinfo.child import run_in_session
from hostinfo.stop_signals import defer_stop_signals

POLL_SECONDS = 0.2
"""Seconds between two calls of `watch`."""


def require_trainer(module: str = "torch") -> None:
    """Raise CommandError if `module`, which the trainer imports, is not installed."""
    if importlib.util.find_spec(module) is None:
        raise CommandError(
            "the trainer is not installed here: pip install --no-deps -r requirements/cpu.txt "
            "(cuda.txt for NVIDIA GPUs), from the source tree"
        )


def make_module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a module of the training program with this Python interpreter."""
    return [sys.executable, "-m", module, *arguments]


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
