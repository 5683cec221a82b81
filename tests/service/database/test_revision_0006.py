"""Upgrade to revision 0006 and back, with a job that waits."""

from sqlalchemy import inspect

from service.database import Database
from service.database.migrate import migrate
from tests.service.database.test_revision_0002 import insert, list_columns, migrate_to, select_rows
from tests.service.database.test_revision_0005 import JOB


def list_queue_columns(database: Database) -> list[str | None]:
    """List the columns of the index by which the queue is read."""
    indexes = {index["name"]: index["column_names"] for index in inspect(database.engine).get_indexes("jobs")}
    return indexes["ix_jobs_queue"]


def test_a_job_of_before_runs_on_one_machine_of_its_launcher_s_queue(database: Database) -> None:
    migrate_to(database, "0005")
    insert(database, "jobs", **JOB, owner="somebody", launcher="local", num_nodes=1, is_held=False)
    migrate(database)
    assert select_rows(database, "SELECT launcher, num_nodes, min_nodes FROM jobs") == [("local", 1, 1)]
    assert list_queue_columns(database) == ["state", "launcher", "priority", "created_at", "id"]
    assert "observed_end" in list_columns(database, "attempts")
    migrate_to(database, "0005")
    assert list_queue_columns(database) == ["state", "priority", "created_at", "id"]
    assert "min_nodes" not in list_columns(database, "jobs")
    assert "observed_end" not in list_columns(database, "attempts")
