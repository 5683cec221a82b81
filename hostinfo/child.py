"""Child processes: how one is started, stopped and described.

`python -m hostinfo.child PARENT_PID MODULE ARGUMENT…` runs MODULE as its main program, in a process that never outlives
its parent. If the parent is killed, the kernel kills the child at once, so that two attempts never write at the same
time. The kernel watches the thread that started the child: parents start children from a thread that lasts.
"""

import ctypes
import math
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any

from hostinfo.fast_exit import skip_last_collection
from hostinfo.stop_signals import STOP_SIGNALS, name_signal

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.05


def make_child_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command for this process to run `module` as a child that never outlives it."""
    return [sys.executable, "-u", "-m", "hostinfo.child", str(os.getpid()), module, *arguments]


def run_child(
    module: str,
    arguments: Sequence[str],
    *,
    output: IO[bytes] | None = None,
    errors: IO[Any] | None = None,
    environment: Mapping[str, str] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
    watch: Callable[[], None] = lambda: None,
    max_seconds: float = math.inf,
) -> int:
    """Run `module` to its end as a child that never outlives this process, and return its exit code.

    output, errors: files for what it prints; None for the output of this process. environment: None for its own.
    is_stopped: the child is killed once this is true. watch: called several times a second while it runs. Raises
    TimeoutError if it was killed after `max_seconds`, and OSError if it cannot be started.
    """
    deadline = time.monotonic() + max_seconds
    process = subprocess.Popen(make_child_command(module, arguments), stdout=output, stderr=errors, env=environment)
    try:
        while True:
            try:
                return process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                watch()
                if is_stopped():
                    return -signal.SIGKILL
                if time.monotonic() > deadline:
                    raise TimeoutError(f"was ended after {max_seconds:.0f} seconds") from None
    finally:
        process.kill()
        process.wait()


@contextmanager
def run_in_session(command: Sequence[str], **options: Any) -> Generator[tuple[subprocess.Popen[Any], list[int]]]:
    """Run `command` in a session of its own during the block, and wait for its end there. Main thread only.

    SIGINT and SIGTERM are passed on to it as SIGTERM: Ctrl-C at a terminal reaches it only once, through this process.
    A command that handles both itself is started within `defer_stop_signals`. options: for `Popen`. Yields the process,
    and the list of signals received so far. Raises OSError if it cannot be started.
    """
    received: list[int] = []

    def pass_on(signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        received.append(signal_number)
        child.terminate()

    with subprocess.Popen(command, start_new_session=True, **options) as child:
        old_handlers = {number: signal.signal(number, pass_on) for number in STOP_SIGNALS}
        try:
            yield child, received
        finally:
            for number, handler in old_handlers.items():
                signal.signal(number, handler)


def describe_exit(exit_code: int, log: str = "its log") -> str:
    """Describe how a process ended, to follow the name of the process in a message. log: name of its log."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}; see {log}"
    hint = "; often the kernel's out-of-memory killer" if -exit_code == signal.SIGKILL else ""
    return f"was killed by {name_signal(-exit_code)}{hint}"


def main() -> None:
    _, parent_pid, *sys.argv = sys.argv
    _die_with_parent(int(parent_pid))
    skip_last_collection()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends. Linux only; elsewhere a child ends by itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        # The parent ended before the call.
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
