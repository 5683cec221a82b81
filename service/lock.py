"""Locks that allow only one service at a time on a state directory and on an SQLite file."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from dlrm.record.state_directory import StateDirectoryError, make_state_directory
from hostinfo.file_lock import try_lock
from service.database.sqlite_place import check_sqlite_place
from service.database.url import DatabaseUnusableError, get_sqlite_file, parse_database_url
from service.settings import Settings


class AlreadyServingError(StateDirectoryError):
    """Error raised where another service holds the lock of the state directory, or of the SQLite file."""


@contextlib.contextmanager
def lock_state(settings: Settings) -> Generator[None]:
    """Keep other services out, where only one may run; the kernel releases the locks when this process ends.

    On SQLite these are the state directory and the database. On PostgreSQL several services share both, and there are
    no locks. Raises StateDirectoryError, AlreadyServingError, DatabaseUrlError and DatabaseUnusableError.
    """
    file = get_sqlite_file(parse_database_url(settings.database_url))
    if file is None:
        make_state_directory(settings.state_directory)
        yield
        return
    with lock_state_directory(settings.state_directory), lock_sqlite_file(file):
        yield


@contextlib.contextmanager
def lock_state_directory(state_directory: Path) -> Generator[None]:
    """Hold the lock of the state directory; the kernel releases it when this process ends, even by a crash.

    Raises StateDirectoryError if the directory cannot be used, and AlreadyServingError if another service holds
    the lock.
    """
    make_state_directory(state_directory)
    remedy = "set DLRM_STATE_DIRECTORY to another directory"
    try:
        lock = _hold_lock(state_directory / "service.lock", str(state_directory), remedy)
    except OSError as error:
        raise StateDirectoryError.from_os_error("DLRM_STATE_DIRECTORY", state_directory, error) from error
    with lock:
        yield


@contextlib.contextmanager
def lock_sqlite_file(file: Path) -> Generator[None]:
    """Hold the lock of an SQLite file, which is a file `<name>.lock` beside it.

    So services with different state directories do not share one SQLite file. Raises DatabaseUnusableError if the
    file cannot be used, and AlreadyServingError if another service holds the lock.
    """
    check_sqlite_place(file)
    real = Path(os.path.realpath(file))
    remedy = "set DLRM_DATABASE_URL to another file, or to PostgreSQL, which several services may share"
    try:
        lock = _hold_lock(real.with_name(f"{real.name}.lock"), f"the database {file}", remedy)
    except OSError as error:
        raise DatabaseUnusableError(
            f"DLRM_DATABASE_URL: cannot use {file}: {error.strerror}; choose a file in a directory that exists and "
            "that the service can write to"
        ) from error
    with lock:
        yield


def _hold_lock(path: Path, what: str, remedy: str) -> contextlib.ExitStack:
    """Lock the file at `path`, and return what releases it. Raises OSError and AlreadyServingError."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("a+"))
        if not try_lock(file.fileno()):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise AlreadyServingError(f"another service (process {holder}) is using {what}; stop it, or {remedy}")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        return stack.pop_all()
