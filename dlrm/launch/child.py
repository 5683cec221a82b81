"""A process that never outlives its parent: `python -m dlrm.launch.child PARENT_PID MODULE ARGUMENT…`.

Runs MODULE as its main program. Where the parent is killed, such as the launch process, the kernel kills this one at
once, so that two attempts never write at the same time. The kernel watches the thread that started the child: parents
start children from their main thread.
"""

import ctypes
import os
import runpy
import signal
import sys
from collections.abc import Sequence

from dlrm.record import RunDirectory
from hostinfo.fast_exit import skip_last_collection

PR_SET_PDEATHSIG = 1


def make_child_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments after the interpreter's name with which this process runs `module` as its child."""
    return ["-u", "-m", "dlrm.launch.child", str(os.getpid()), module, *arguments]


def make_attempt_command(module: str, directory: RunDirectory, attempt: int) -> list[str]:
    """Return those with which this process, the launch process, runs `module` for one attempt."""
    return make_child_command(module, [str(directory.path), "--attempt", str(attempt)])


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
