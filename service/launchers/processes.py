"""Functions that find the processes of attempts by inherited environment variables, and kill them."""

import contextlib
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

MARKER = "DLRM_ATTEMPT_DIRECTORY"
"""Environment variable that the launch process and all its descendants have, whatever their session or parent."""
SERVICE_MARKER = "DLRM_SERVICE_ID"
"""Environment variable with the identity of the service that started the attempt."""

EXEC_SECONDS = 1.0
"""Longest wait, in seconds, for the environment of a process that is inside exec."""
EXEC_POLL_SECONDS = 0.001
"""Seconds between two looks at that environment."""


def make_marks(attempt_directory: Path, service_id: str) -> dict[str, str]:
    """Make the environment variables by which the processes of an attempt are found."""
    return {MARKER: str(attempt_directory), SERVICE_MARKER: service_id}


def list_attempt_directories(service_id: str) -> set[Path]:
    """List the attempts that have living processes started by the service `service_id`."""
    found: set[Path] = set()
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get(SERVICE_MARKER) == service_id and process.status() != psutil.STATUS_ZOMBIE:
                found.add(Path(environment[MARKER]))
        except (psutil.Error, KeyError):
            continue
    return found


def is_marked(process: psutil.Process, attempt_directory: Path) -> bool:
    """Whether `process` is alive and belongs to the attempt."""
    try:
        is_ours = _wait_for_environment(process).get(MARKER) == str(attempt_directory)
        return is_ours and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def find_marked(attempt_directory: Path) -> list[psutil.Process]:
    """List all living processes of the attempt, orphans included, oldest first."""
    processes = [process for process in psutil.process_iter() if is_marked(process, attempt_directory)]
    return sorted(processes, key=_get_start_time)


def find_same(pid: int, start_time: float, attempt_directory: Path) -> psutil.Process | None:
    """Return the living process `pid` if it is the recorded one, and not a later process with the same number.

    start_time: in seconds since the epoch, as recorded. A change of the system clock moves the start time of processes,
    so the attempt's mark also identifies the process. Returns None if there is no such process.
    """
    try:
        process = psutil.Process(pid)
        is_same = abs(process.create_time() - start_time) < 1.0 or is_marked(process, attempt_directory)
        return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def kill_all(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)


def _wait_for_environment(process: psutil.Process) -> dict[str, str]:
    """Return the environment of `process`; wait while it is inside exec, where the kernel shows none yet."""
    deadline = time.monotonic() + EXEC_SECONDS
    while not (environment := process.environ()) and time.monotonic() < deadline:
        # A kernel thread has neither executable nor arguments; a process inside exec has its executable first.
        if process.cmdline() or not process.exe():
            break
        time.sleep(EXEC_POLL_SECONDS)
    return environment


def _get_start_time(process: psutil.Process) -> float:
    try:
        return float(process.create_time())
    except psutil.Error:
        return float("inf")
