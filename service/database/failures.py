"""Meaning of an error of the database: it is away for now, its disk is full, or waiting changes nothing."""

import sqlite3

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoFreeConnectionError

from dlrm.record import FULL_DISK

_AWAY_SQLSTATES = ("08", "57P", "53300", "25P03")
"""Beginnings of the SQLSTATE of a broken connection, of a stopping or starting server, of too many connections, and of
a transaction that the server has ended because its process was stopped."""
_DISK_FULL = "53100"
"""SQLSTATE of PostgreSQL's error `disk_full`."""
_VALUES_REFUSED = ("21", "22", "23", "54")
"""Beginnings of the SQLSTATE of values that are too many, are none of their type, break a constraint, or exceed a
limit."""
_AWAY_SQLITE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_REFUSALS = (
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "not permitted to log in",
    "permission denied",
    "SSL",
    "invalid ",
)
"""Parts of what a server, or the driver, says of a connection that no waiting will bring about. PostgreSQL gives such
errors no code; one in another language is taken for a server that is away."""


def is_database_away(error: BaseException) -> bool:
    """Whether `error` means that the database cannot be reached, or is too busy, and that a later try may succeed."""
    if isinstance(error, NoFreeConnectionError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _AWAY_SQLITE
    sqlstate = getattr(cause, "sqlstate", None)
    if sqlstate is None:
        # The driver raises an OperationalError without a code where there is no connection.
        return error.connection_invalidated or type(cause).__name__ == "OperationalError"
    return sqlstate.startswith(_AWAY_SQLSTATES)


def are_values_refused(error: DBAPIError) -> bool:
    """Whether the database refuses the values of a statement, and would take others."""
    sqlstate = getattr(error.orig, "sqlstate", None)
    return isinstance(error, DataError | IntegrityError) or (sqlstate or "").startswith(_VALUES_REFUSED)


def is_refused(error: DBAPIError) -> bool:
    """Whether a connection was refused for a reason that stays, such as a wrong password."""
    return any(refusal in str(error.orig) for refusal in _REFUSALS)


def is_storage_full(error: BaseException) -> bool:
    """Whether `error`, of a file operation or of the database, means that the disk is full."""
    if isinstance(error, OSError):
        return error.errno in FULL_DISK
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return getattr(cause, "sqlstate", None) == _DISK_FULL


def get_cause(error: Exception) -> str:
    """Return what the database says of an error, in one line, without the address, which the caller names itself."""
    if not isinstance(error, DBAPIError):
        return str(error).partition("\n")[0]
    lines = str(error.orig).splitlines() or [type(error.orig).__name__]
    _, _, reason = lines[0].rpartition(" failed: ")
    return reason.removeprefix("FATAL:").strip()
