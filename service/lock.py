"""Lock that allows only one service at a time on a state directory."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

from hostinfo.file_lock import try_lock
from service.state_directory import StateDirectoryError, make_state_directory


class AlreadyServingError(StateDirectoryError):
    """Error raised where another service holds the lock of the state directory."""


@contextlib.contextmanager
def lock_state_directory(state_directory: Path) -> Generator[None]:
    """Hold the lock of the state directory; the kernel releases it when this process ends, even by a crash.

    Raises StateDirectoryError where the directory cannot be used, and AlreadyServingError where another service holds
    the lock.
    """
    make_state_directory(state_directory)
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context((state_directory / "service.lock").open("a+"))
            _lock(file, state_directory)
        except OSError as error:
            raise StateDirectoryError.from_os_error("DLRM_STATE_DIRECTORY", state_directory, error) from error
        yield


def _lock(file: TextIO, state_directory: Path) -> None:
    if not try_lock(file.fileno()):
        file.seek(0)
        holder = file.read().strip() or "unknown"
        raise AlreadyServingError(
            f"another service (process {holder}) is using {state_directory}; stop it, or set "
            "DLRM_STATE_DIRECTORY to another directory"
        )
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
