"""The processes of one attempt: found by what they inherit, counted, ended."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

MARKER = "DLRM_ATTEMPT_DIRECTORY"
"""Environment variable that the launch process and all below it carry, wherever they move to."""

EXEC_SECONDS = 1.0
"""Longest wait for the environment of a process that is being started."""
EXEC_POLL_SECONDS = 0.001


def marked_environment(attempt_directory: Path) -> dict[str, str]:
    return {**os.environ, MARKER: str(attempt_directory)}


def is_marked(process: psutil.Process, attempt_directory: Path) -> bool:
    """Whether `process` is alive and belongs to the attempt."""
    try:
        is_ours = _environment(process).get(MARKER) == str(attempt_directory)
        return is_ours and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def find_marked(attempt_directory: Path) -> list[psutil.Process]:
    """Every living process of the attempt, strays too, oldest first."""
    found = [process for process in psutil.process_iter() if is_marked(process, attempt_directory)]
    return sorted(found, key=_start_time)


def find_same(pid: int, start_time: float, attempt_directory: Path) -> psutil.Process | None:
    """The living process `pid` if it is the one that was recorded, not a later one of that number.

    A clock that was set moves the start time, so that the attempt's mark counts too.
    """
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - start_time) < 1.0 or is_marked(process, attempt_directory)
        return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def memory_bytes(process: psutil.Process) -> int:
    """Proportional set size of `process` and all below it: shared pages count once."""
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(_pss_bytes(member) for member in tree)


def kill_all(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)


def _environment(process: psutil.Process) -> dict[str, str]:
    """The environment of `process`, waited for while the kernel executes its program anew: until then it shows none."""
    deadline = time.monotonic() + EXEC_SECONDS
    while not (environment := process.environ()) and time.monotonic() < deadline:
        # A thread of the kernel has neither program nor arguments; a process in exec has its program first.
        if process.cmdline() or not process.exe():
            break
        time.sleep(EXEC_POLL_SECONDS)
    return environment


def _pss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def _start_time(process: psutil.Process) -> float:
    try:
        return float(process.create_time())
    except psutil.Error:
        return float("inf")
