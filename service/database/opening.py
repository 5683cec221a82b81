"""Opening of the database at the start of the service, with errors that a person can act on."""

import time

import structlog
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

from service.database.database import Database
from service.database.failures import get_cause, is_database_away, is_refused
from service.database.migrate import ForeignRevisionError, migrate
from service.database.url import DatabaseUnusableError, describe_database, parse_database_url

log = structlog.get_logger(__name__)

WAIT_SECONDS = 30.0
"""Seconds that the service waits at its start for an absent database, such as one starting at the same time."""
PAUSE_SECONDS = 0.5
"""Seconds between two tries to connect."""

_MISSING_RIGHT = "42501"
_READ_ONLY = "25006"
"""SQLSTATE of a write to a PostgreSQL server that only follows another one."""
_NEW_DATABASE = "name an empty database, or the one of an earlier version of this service"


def open_database(text: str) -> Database:
    """Open the database at a URL and migrate it to the newest schema.

    Wait up to WAIT_SECONDS for a PostgreSQL server that is away. Raises DatabaseUrlError, DatabaseUnusableError.
    """
    url = parse_database_url(text)
    database = _create(url)
    try:
        _wait_for_connection(database, url)
        _migrate(database, url)
    except BaseException:
        database.close()
        raise
    return database


def _create(url: URL) -> Database:
    try:
        return Database(url.render_as_string(hide_password=False))
    except ImportError as error:
        remedy = "install it: pip install 'dlrm-service[postgres]'"
        raise _make_error(url, f"its driver cannot be loaded ({error})", remedy) from error


def _wait_for_connection(database: Database, url: URL) -> None:
    give_up_at = time.monotonic() + WAIT_SECONDS
    is_told = False
    while True:
        try:
            with database.engine.connect():
                return
        except DBAPIError as error:
            is_hopeless = url.get_backend_name() == "sqlite" or is_refused(error) or not is_database_away(error)
            if is_hopeless or time.monotonic() > give_up_at:
                raise _make_error(url, get_cause(error), _find_remedy(url, error)) from error
            if not is_told:
                name, cause = describe_database(url), get_cause(error)
                log.warning("waiting_for_database", database=name, error=cause, seconds_at_most=WAIT_SECONDS)
                is_told = True
        time.sleep(PAUSE_SECONDS)


def _migrate(database: Database, url: URL) -> None:
    try:
        migrate(database)
    except ForeignRevisionError as error:
        raise DatabaseUnusableError(f"DLRM_DATABASE_URL: cannot use {describe_database(url)}: {error}") from error
    except DBAPIError as error:
        raise _make_error(url, get_cause(error), _find_remedy(url, error)) from error


def _make_error(url: URL, cause: str, remedy: str) -> DatabaseUnusableError:
    return DatabaseUnusableError(f"DLRM_DATABASE_URL: cannot use {describe_database(url)}: {cause}; {remedy}")


def _find_remedy(url: URL, error: DBAPIError) -> str:
    if url.get_backend_name() == "sqlite":
        return _find_sqlite_remedy(error)
    cause, sqlstate = get_cause(error), getattr(error.orig, "sqlstate", None)
    if sqlstate == _MISSING_RIGHT:
        return "make its user the owner of the database, or grant it CREATE on the schema"
    if sqlstate == _READ_ONLY:
        return "name the server that can be written to"
    if "password" in cause or "role " in cause:
        return "correct user and password"
    if "database " in cause and "does not exist" in cause:
        return "create it (createdb), or correct its name"
    if is_database_away(error) and not is_refused(error):
        return "check that PostgreSQL runs there, and correct host and port"
    return "correct the URL, or what the server allows" if sqlstate is None else _NEW_DATABASE


def _find_sqlite_remedy(error: DBAPIError) -> str:
    match str(getattr(error.orig, "sqlite_errorname", "")).split("_")[1:2]:
        case ["CANTOPEN" | "READONLY" | "PERM" | "IOERR"]:
            return "choose a file in a directory that exists and that the service can write to"
        case ["NOTADB" | "CORRUPT"]:
            return "choose another file, or restore a backup"
        case ["FULL"]:
            return "free space on its disk"
        case ["BUSY" | "LOCKED"]:
            return "end the program that holds it"
        case _:
            return _NEW_DATABASE
