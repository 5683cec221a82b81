"""Migration of the tables to the version of this program."""

from functools import cache

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from service.database.database import Database

ADVISORY_LOCK = 0x646C726D
"""Key of the PostgreSQL lock that this program's migrations hold."""


class ForeignRevisionError(Exception):
    """Error raised where another version of this program has made the tables; the message says which one can help."""


def migrate(database: Database) -> None:
    """Run the missing migrations in one transaction.

    If two services start at once, the second one waits and finds nothing left to do. Raises ForeignRevisionError.
    """
    with database.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE").begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        revision = MigrationContext.configure(connection).get_current_revision()
        if revision is not None:
            check_revision(revision)
        if revision != _read_migrations().get_current_head():
            command.upgrade(make_config(connection), "head")


def make_config(connection: Connection | None) -> Config:
    """Make the configuration of the migrations. connection: None if they are only read."""
    config = Config()
    config.set_main_option("script_location", "service.database:migrations")
    config.attributes["connection"] = connection
    return config


@cache
def _read_migrations() -> ScriptDirectory:
    return ScriptDirectory.from_config(make_config(None))


def check_revision(revision: str) -> None:
    """Raise ForeignRevisionError if this version of the program cannot use tables of a revision."""
    known = _read_migrations()
    first, newest = known.get_base() or "", known.get_current_head() or ""
    if revision > newest:
        raise ForeignRevisionError(
            f"a later version of this program has changed its tables to revision {revision}, of which this version "
            f"knows up to {newest}; start that version, or restore a backup from before the upgrade"
        )
    if revision < first:
        raise ForeignRevisionError(
            f"its tables are at revision {revision}, and this version upgrades them from {first} on; start once the "
            "last version before this one, which upgrades them to that"
        )
