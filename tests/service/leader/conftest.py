"""Fixtures: databases of each kind, with tables."""

import pytest

from service.database import Database
from service.database.migrate import migrate
from service.leader.leadership import find_service_id
from tests.service.database.conftest import database as empty_database
from tests.service.database.conftest import postgres_directory

__all__ = ["empty_database", "postgres_directory"]


@pytest.fixture
def database(empty_database: Database) -> Database:
    migrate(empty_database)
    find_service_id(empty_database)
    return empty_database
