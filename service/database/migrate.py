"""Brings the tables to the version of this program."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from service.database.database import Database

ADVISORY_LOCK = 0x646C726D
"""Of this program's migrations, on PostgreSQL."""


def migrate(database: Database) -> None:
    """Run what is missing, in one transaction; of two services starting at once the second waits and finds it done."""
    with database.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE").begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        command.upgrade(_config(connection), "head")


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "service.database:migrations")
    config.attributes["connection"] = connection
    return config
