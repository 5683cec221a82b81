"""Upgrade to revision 0005 and back, with a job and an attempt of before."""

from service.database import Database
from service.database.migrate import migrate
from tests.service.database.test_revision_0002 import TIME, insert, list_columns, migrate_to, select_rows

JOB = {
    **{"id": "job_1", "name": "old", "priority": 0, "state": "RUNNING", "reason": "process_started", "message": ""},
    **{"created_at": TIME, "created_by": "somebody", "num_attempts": 1, "world_size": 1, "num_cores": 1},
    **{"memory_bytes": 1, "num_gpus": 0, "spec": "{}", "resolved": "{}", "progress": "{}", "metrics": "{}"},
    "run_directory": "/runs/job_1",
}
ATTEMPT = {"id": "att_1", "job_id": "job_1", "number": 1, "state": "RUNNING", "message": "", "token_hash": ""}
TABLES = ("log_parts", "checkpoints")


def test_what_was_there_has_reported_nothing_and_new_rows_go_with_a_downgrade(database: Database) -> None:
    migrate_to(database, "0004")
    insert(database, "jobs", **JOB)
    insert(database, "attempts", **ATTEMPT, stop_message="", started_at=TIME)
    columns = {table: list_columns(database, table) for table in ("jobs", "attempts")}
    migrate(database)
    assert select_rows(database, "SELECT id, model_path FROM jobs") == [("job_1", None)]
    assert select_rows(database, "SELECT id, reported_end FROM attempts") == [("att_1", None)]
    part = {"attempt_id": "att_1", "rank": 0, "stream": "log", "start_byte": 2**33, "num_bytes": 2, "text": "a\n"}
    insert(database, "log_parts", **part)
    sizes = {"num_steps": 2**33, "num_samples": 2**43, "num_bytes": 2**43, "world_size": 1}
    insert(database, "checkpoints", job_id="job_1", step=2**33, attempt=1, **sizes, time=TIME, path="s3://b/r")
    assert select_rows(database, "SELECT start_byte, text FROM log_parts") == [(2**33, "a\n")]
    migrate_to(database, "0004")
    assert {table: list_columns(database, table) for table in columns} == columns
    assert select_rows(database, "SELECT id FROM attempts") == [("att_1",)]
    migrate(database)
    for table in TABLES:
        assert select_rows(database, f"SELECT * FROM {table}") == []


def test_rows_go_with_their_job(database: Database) -> None:
    migrate(database)
    owner = {"owner": "somebody", "launcher": "local", "num_nodes": 1, "is_held": False}
    insert(database, "jobs", **JOB, **owner)
    insert(database, "attempts", **ATTEMPT, stop_message="", started_at=TIME)
    insert(database, "log_parts", attempt_id="att_1", rank=0, stream="log", start_byte=0, num_bytes=2, text="a\n")
    sizes = {"num_steps": 2, "num_samples": 2, "num_bytes": 2, "world_size": 1}
    insert(database, "checkpoints", job_id="job_1", step=1, attempt=1, **sizes, time=TIME, path="/runs/1")
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM jobs")
    for table in TABLES:
        assert select_rows(database, f"SELECT * FROM {table}") == []
