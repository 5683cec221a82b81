"""Fixtures of the tests of the service."""

from tests.service.fixtures import (
    api,
    browser,
    data_root,
    database_kind,
    live_api,
    log_level,
    own_clock,
    postgres_server,
    pytest_itemcollected,
    rounds_without_time_limit,
    settings,
    shared_api,
    sqlite_template,
    trainer_python,
)

__all__ = [
    "api",
    "browser",
    "data_root",
    "database_kind",
    "live_api",
    "log_level",
    "own_clock",
    "postgres_server",
    "pytest_itemcollected",
    "rounds_without_time_limit",
    "settings",
    "shared_api",
    "sqlite_template",
    "trainer_python",
]
