"""The kinds of database that a service may have, and one of each for a test."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlrm.record.state_directory import make_state_directory
from service.database import Base, Database
from tests.service.postgres import TEMPLATE, PostgresServer

KINDS = ("sqlite", "postgresql")

on_both_databases = pytest.mark.on_both_databases
"""Mark of tests whose statements or locks depend on the kind: `make test` runs them on both, and others on SQLite."""
on_sqlite = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
"""Mark of a test about SQLite, or of one that the kind of database cannot change."""
on_postgresql = pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)


@contextmanager
def lend_database(
    kind: str, directory: Path, request: pytest.FixtureRequest, *, is_empty: bool = False
) -> Generator[str]:
    """Lend a new database of this kind, by its URL.

    directory: where an SQLite file will be. is_empty: without tables; otherwise it is a copy of one that has them all,
    which is quicker than a migration for each.
    """
    if kind == "sqlite":
        path = directory / "service.sqlite3"
        if not is_empty:
            make_state_directory(directory)
            shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database("template0" if is_empty else TEMPLATE)
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
