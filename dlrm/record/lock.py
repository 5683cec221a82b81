"""One launch process at a time in a run directory."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dlrm.record.directory import RunDirectory
from hostinfo.file_lock import try_lock

PATIENCE_SECONDS = 1.0
"""How long a holder may take to let go: one that was killed a moment ago, or somebody who only looked."""
RETRY_SECONDS = 0.05


class RunInUseError(Exception):
    """Another process works in the run directory; the message names both."""

    def __init__(self, directory: Path, holder: str) -> None:
        self.holder = holder
        """Its process id, or `unknown`."""
        super().__init__(f"{directory} is in use by process {holder}")


@contextmanager
def run_lock(directory: RunDirectory) -> Generator[None]:
    """Hold the run directory. The kernel lets go of it when this process ends, however it does; no child holds it.

    Raises RunInUseError where another process holds it, and OSError where the directory cannot be written.
    """
    with directory.lock.open("a+") as file:
        _lock(file, directory)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _lock(file: TextIO, directory: RunDirectory) -> None:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while True:
        if try_lock(file.fileno()):
            return
        if time.monotonic() >= give_up_at:
            file.seek(0)
            raise RunInUseError(directory.path, file.read().strip() or "unknown")
        time.sleep(RETRY_SECONDS)
