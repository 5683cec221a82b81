"""Upgrade to revision 0004 and back, while a leader of the version before is known."""

from service.database import Database
from service.database.migrate import migrate
from tests.service.database.test_revision_0002 import TIME, insert, list_columns, migrate_to, select_rows


def test_the_leader_of_before_has_neither_renewed_nor_told_its_capacity(database: Database) -> None:
    migrate_to(database, "0003")
    insert(database, "leadership", id=1, token=7, owner="machine-0", service_id="svc_1", since=TIME)
    migrate(database)
    query = "SELECT token, owner, service_id, renewed_at, capacity FROM leadership"
    assert select_rows(database, query) == [(7, "machine-0", "svc_1", None, None)]
    migrate_to(database, "0003")
    assert list_columns(database, "leadership") == {"id", "token", "owner", "service_id", "since"}
    assert select_rows(database, "SELECT token, owner FROM leadership") == [(7, "machine-0")]
