"""Fixture: an empty database of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.database import Database
from tests.service.databases import lend_database


@pytest.fixture
def database(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    """Database without tables."""
    with lend_database(database_kind, tmp_path, request, is_empty=True) as url:
        database = Database(url)
        yield database
        database.close()
