"""A process that is stopped in the middle of a transaction."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.database import Database
from service.database import database as module
from service.database.failures import is_database_away
from tests.service.databases import on_postgresql


@on_postgresql
def test_what_a_stopped_transaction_has_locked_is_free_after_some_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_TRANSACTION_SECONDS", 0.2)
    with database.write() as session:
        session.execute(text("CREATE TABLE held (number integer)"))
    stopped = Database(database.engine.url.render_as_string(hide_password=False))
    lock = text("LOCK TABLE held")
    with stopped.read() as session:
        session.execute(lock)
        with database.write() as other:
            other.execute(lock)
        with pytest.raises(DBAPIError) as raised:
            session.execute(lock)
    assert is_database_away(raised.value)
    stopped.close()
