"""URL of the database: what it may be, how it is shown without its password, and errors about it."""

from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError


class DatabaseUnusableError(Exception):
    """Error raised where the service cannot use its database; the message says what to do."""


class DatabaseUrlError(Exception):
    """Error raised if the URL of the database is invalid; the message says what would be valid."""


class UnsafePlaceError(DatabaseUnusableError):
    """Error raised where a file is in a place in which SQLite may damage it."""


VALID = (
    "sqlite:////absolute/path.sqlite3, or postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE with %40 for an @ in "
    "the password, %25 for a %"
)
_DRIVERS = ("sqlite", "sqlite+pysqlite", "postgresql+psycopg")
_ADDRESS = ("host", "port")
_MAX_PORT = 65_535


def parse_database_url(text: str) -> URL:
    """Parse the URL of a database of a supported kind. Raises DatabaseUrlError."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise _make_error("is not the URL of a database") from None
    if url.drivername not in _DRIVERS:
        raise _make_error(f"{url.drivername} is not a kind of database that the service can use")
    if url.get_backend_name() == "sqlite":
        if url.host or url.username or not url.database or url.database == ":memory:" or "uri" in url.query:
            raise _make_error("names no file of SQLite")
    elif "@" in (url.host or ""):
        # What seems to be the host is the end of the password.
        raise _make_error("has a password with an @ that is not written as %40")
    elif url.port is not None and not 0 < url.port <= _MAX_PORT:
        raise _make_error(f"port {url.port} is not one (1 to {_MAX_PORT})")
    return url


def get_sqlite_file(url: URL) -> Path | None:
    """Return the file of an SQLite database; None for another database."""
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def describe_database(url: URL) -> str:
    """Return the URL without its passwords: of the query, which may contain another one, only the address is kept."""
    address = {name: value for name, value in url.query.items() if name in _ADDRESS}
    return url.set(query=address).render_as_string(hide_password=True)


def _make_error(fault: str) -> DatabaseUrlError:
    # Without the URL: where it cannot be parsed, nobody knows which part of it is the password.
    return DatabaseUrlError(f"DLRM_DATABASE_URL: {fault} (valid: {VALID})")
