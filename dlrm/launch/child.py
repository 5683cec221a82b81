"""A process that never outlives the launch process: `python -m dlrm.launch.child LAUNCH_PID MODULE ARGUMENT…`.

It runs MODULE as its program. Where the launch process is killed, the kernel kills it at that moment: two attempts
never write side by side. What counts is the thread that starts it: the launch process does so from its main thread.
"""

import ctypes
import os
import runpy
import signal
import sys

from dlrm.record import RunDirectory

PR_SET_PDEATHSIG = 1


def child_command(module: str, directory: RunDirectory, attempt: int) -> list[str]:
    """What this process, the launch process, runs for `module`, behind the name of the interpreter."""
    own = ["-u", "-m", "dlrm.launch.child", str(os.getpid())]
    return [*own, module, str(directory.path), "--attempt", str(attempt)]


def main() -> None:
    _, launch_pid, *sys.argv = sys.argv
    _die_with(int(launch_pid))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends. Only Linux can; elsewhere a child ends by itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        # It was gone before that.
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
