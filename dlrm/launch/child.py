"""A process that never outlives the launch process: `python -m dlrm.launch.child LAUNCH_PID MODULE ARGUMENT…`.

Runs MODULE as its main program. Where the launch process is killed, the kernel kills this one at once, so that two
attempts never write at the same time. The kernel watches the thread that started the child: the launch process starts
children from its main thread.
"""

import ctypes
import os
import runpy
import signal
import sys

from dlrm.record import RunDirectory

PR_SET_PDEATHSIG = 1


def make_child_command(module: str, directory: RunDirectory, attempt: int) -> list[str]:
    """Return the arguments after the interpreter's name with which this process, the launch process, runs `module`."""
    own = ["-u", "-m", "dlrm.launch.child", str(os.getpid())]
    return [*own, module, str(directory.path), "--attempt", str(attempt)]


def main() -> None:
    _, launch_pid, *sys.argv = sys.argv
    _die_with_parent(int(launch_pid))
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
