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
TIME_FORMAT = "%Y-%m-%d %H:%M:%S UTC"


class RunInUseError(Exception):
    """Error of a run directory in which another process works; the message names both, and the process's machine."""

    def __init__(self, directory: Path, process: str, host: str, attempt: int | None = None, since: str = "") -> None:
        """Keep who holds the lock.

        process: its id. host: its machine. Both are empty if the lock file is. attempt: number of the attempt that
        it runs. since: time at which it took the lock. Both are absent where the file does not say so.
        """
        where = f" on {host}" if host not in ("", socket.gethostname()) else ""
        self.attempt = attempt
        self.holder = f"process {process or 'unknown'}{where}"
        """Name of the process that holds the lock, and of its machine if it is another one."""
        self.since = since
        self.advice = f"wait for it to end, or stop it{f' with kill {process}' if process else ''}{where}"
        """Advice to the user, to follow the message."""
        super().__init__(f"{directory} is in use by {self.holder}")

    def explain(self) -> str:
        """Return the message with the attempt of that process, and the time since which it runs."""
        attempt = f", attempt {self.attempt}" if self.attempt is not None else ""
        return f"{self}{attempt}{f', since {self.since}' if self.since else ''}"


@contextmanager
def hold_run_lock(directory: RunDirectory, node: int = 0, attempt: int | None = None) -> Generator[None]:
    """Hold the lock of the run directory for one node; the lock of node 0 stands for the run.

    attempt: number of the attempt that this process runs, for others to read if they find the lock held; None if it
    runs none.

    The kernel releases it however this process ends; no child process holds it.

    Raises RunInUseError if another process holds the lock, and OSError if the directory cannot be written.
    """
    with directory.lock(node).open("a+") as file:
        _lock(file, directory)
        file.truncate(0)
        number = "-" if attempt is None else str(attempt)
        file.write(f"{os.getpid()} {socket.gethostname()} {number} {time.strftime(TIME_FORMAT, time.gmtime())}")
        file.flush()
        yield


def _lock(file: TextIO, directory: RunDirectory) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        if try_lock(file.fileno()):
            return
        if time.monotonic() >= deadline:
            file.seek(0)
            raise _describe_holder(directory.path, file.read())
        time.sleep(RETRY_SECONDS)


def _describe_holder(directory: Path, content: str) -> RunInUseError:
    """Make the error that names the holder of a lock. content: text of the lock file, of any version."""
    process, host, number, since, *_ = [*content.strip().split(" ", maxsplit=3), "", "", "", ""]
    return RunInUseError(directory, process, host, int(number) if number.isdecimal() else None, since)
