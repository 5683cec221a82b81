"""Lock that admits one launch process at a time to a run directory."""

import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dlrm.record.directory import RunDirectory
from hostinfo.file_lock import try_lock

LOCK_TIMEOUT_SECONDS = 1.0
"""Seconds to wait for a process that holds the lock: it may have been killed just now, or hold it only for a check."""
RETRY_SECONDS = 0.05


class RunInUseError(Exception):
    """Error of a run directory in which another process works; the message names both, and the process's machine."""

    def __init__(self, directory: Path, process: str, host: str) -> None:
        """Keep who holds the lock. process: its id. host: its machine. Both are empty where the lock file is."""
        where = f" on {host}" if host not in ("", socket.gethostname()) else ""
        self.advice = f"wait for it to end, or stop it{f' with kill {process}' if process else ''}{where}"
        """Advice to the user, to follow the message."""
        super().__init__(f"{directory} is in use by process {process or 'unknown'}{where}")


@contextmanager
def hold_run_lock(directory: RunDirectory, node: int = 0) -> Generator[None]:
    """Hold the lock of the run directory for one node; that of node 0 stands for the run.

    The kernel releases it however this process ends; no child process holds it.

    Raises RunInUseError where another process holds the lock, and OSError where the directory cannot be written.
    """
    with directory.lock(node).open("a+") as file:
        _lock(file, directory)
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()}")
        file.flush()
        yield


def _lock(file: TextIO, directory: RunDirectory) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        if try_lock(file.fileno()):
            return
        if time.monotonic() >= deadline:
            file.seek(0)
            process, _, host = file.read().strip().partition(" ")
            raise RunInUseError(directory.path, process, host)
        time.sleep(RETRY_SECONDS)
