"""The kinds of database that a service may have, and one of each for a test."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.database import Base, Database
from tests.service.postgres import TEMPLATE, PostgresServer

KINDS = ("sqlite", "postgresql")

on_sqlite = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
"""Mark of a test about SQLite, or of one that the kind of database cannot change."""
on_postgresql = pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)


@contextmanager
def lend_database(
    kind: str, directory: Path, request: pytest.FixtureRequest, template: str = TEMPLATE
) -> Generator[str]:
    """Lend a new database of this kind, by its URL.

    directory: where an SQLite file will be. template: database of PostgreSQL that the new one is a copy of.
    """
    if kind == "sqlite":
        yield f"sqlite:///{directory / 'service.sqlite3'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database(template)
    try:
        yield server.make_url(name)
    finally:
        server.drop_database(name)


def dump_rows(database: Database) -> str:
    """Return the rows of all tables as text."""
    with database.engine.connect() as connection:
        return "\n".join(
            repr(row) for table in Base.metadata.sorted_tables for row in connection.execute(table.select())
        )
