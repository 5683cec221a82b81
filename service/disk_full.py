"""Detection of a full disk, and the message about it."""

import sqlite3
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from dlrm.record import FULL_DISK

POSTGRESQL_DISK_FULL = "53100"
"""SQLSTATE of PostgreSQL's error `disk_full`."""


def is_storage_full(error: BaseException) -> bool:
    """Whether `error`, of a file operation or of the database, means that the disk is full."""
    if isinstance(error, OSError):
        return error.errno in FULL_DISK
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return getattr(cause, "sqlstate", None) == POSTGRESQL_DISK_FULL


def storage_full_message(state_directory: Path) -> str:
    """Return the message for users that the disk of the state directory is full."""
    return f"the disk of {state_directory}, where the service keeps its data, is full; free space, then try again"
