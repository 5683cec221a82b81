"""Upgrade to revision 0007, with jobs that left a range of machines."""

from service.database import Database
from service.database.migrate import migrate
from tests.service.database.test_revision_0002 import insert, migrate_to, select_rows
from tests.service.database.test_revision_0005 import JOB


def test_a_range_of_machines_counts_as_one_on_the_launcher_local_and_in_full_elsewhere(database: Database) -> None:
    migrate_to(database, "0006")
    for launcher in ("local", "kubernetes"):
        job = JOB | {"id": launcher, "world_size": 8}
        insert(database, "jobs", **job, owner="somebody", launcher=launcher, num_nodes=4, min_nodes=1, is_held=False)
    migrate(database)
    rows = select_rows(database, "SELECT launcher, num_nodes, min_nodes, world_size FROM jobs ORDER BY launcher")
    assert rows == [("kubernetes", 4, 1, 8), ("local", 1, 1, 2)]
