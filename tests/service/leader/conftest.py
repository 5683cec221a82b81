"""Fixture: a database of each kind, with tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.database import Database
from service.database.migrate import migrate
from service.leader.leadership import find_service_id
from tests.service.databases import lend_database


@pytest.fixture
def database(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    with lend_database(database_kind, tmp_path, request) as url:
        database = Database(url)
        migrate(database)
        find_service_id(database)
        yield database
        database.close()
