"""One service at a time on a state directory."""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path


class AlreadyServingError(Exception):
    """Another service holds the state directory."""


@contextlib.contextmanager
def exclusive(state_directory: Path) -> Generator[None]:
    """Hold the state directory; the kernel lets go of it when this process ends, however it does.

    Raises AlreadyServingError.
    """
    state_directory.mkdir(parents=True, exist_ok=True)
    path = state_directory / "service.lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise AlreadyServingError(
                f"another service (process {holder}) is using {state_directory}; stop it, or set "
                "DLRM_STATE_DIRECTORY to another directory"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
