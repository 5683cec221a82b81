"""Migration of the tables to the version of this program."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from service.database.database import Database

ADVISORY_LOCK = 0x646C726D
"""Key of the PostgreSQL lock that this program's migrations hold."""


def migrate(database: Database) -> None:
    """Run the missing migrations in one transaction.

    If two services start at once, the second one waits and finds nothing left to do.
    """
    with database.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE").begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        command.upgrade(_make_config(connection), "head")


def _make_config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "service.database:migrations")
    config.attributes["connection"] = connection
    return config
