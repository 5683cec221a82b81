"""Upgrade to revision 0002 and back, with rows in the tables."""

import json
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from service.database import Base, Database
from service.database.migrate import _make_config, migrate
from service.reports.repository import Curve, ReportRepository
from service.store.attempt_repository import AttemptRepository
from service.store.job_repository import JobRepository

TIME = "2026-01-02 03:04:05+00:00"


def migrate_to(database: Database, revision: str) -> None:
    with database.engine.begin() as connection:
        is_up = revision > (MigrationContext.configure(connection).get_current_revision() or "")
        (command.upgrade if is_up else command.downgrade)(_make_config(connection), revision)


def insert(database: Database, table: str, **values: Any) -> None:
    names = ", ".join(values)
    placeholders = ", ".join(f":{name}" for name in values)
    with database.engine.begin() as connection:
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({placeholders})"), values)


def select_rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with database.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


@pytest.fixture
def old_database(database: Database) -> Database:
    """Database at revision 0001: a job with an attempt of four steps, one of three, and one without reports."""
    migrate_to(database, "0001")
    insert(
        database,
        "jobs",
        **{"id": "job_1", "name": "old", "priority": 0, "state": "RUNNING", "reason": "process_started", "message": ""},
        **{"created_at": TIME, "created_by": "somebody", "num_attempts": 3, "world_size": 1, "num_cores": 1},
        **{"memory_bytes": 1, "num_gpus": 0, "spec": "{}", "resolved": "{}", "progress": "{}", "metrics": "{}"},
        run_directory="/runs/job_1",
    )
    for number, num_steps in ((1, 4), (2, 3), (3, 0)):
        fixed = {"message": "", "token_hash": "", "stop_message": "", "started_at": TIME}
        attempt = f"att_{number}"
        insert(database, "attempts", id=attempt, job_id="job_1", number=number, state="FAILED", **fixed)
        for step in range(1, num_steps + 1):
            report = json.dumps({"kind": "step", "step": step, "loss": 1.0 / step})
            names = {"job_id": "job_1", "attempt_id": attempt, "attempt": number, "rank": 0, "stream": "metrics"}
            insert(database, "metrics", **names, seq=step, kind="step", report=report)
        position = {"rank": 0, "stream": "metrics", "acknowledged_seq": num_steps}
        insert(database, "stream_positions", attempt_id=attempt, **position)
    return database


def test_an_upgrade_keeps_every_row_and_knows_steps_and_starts(old_database: Database) -> None:
    migrate(old_database)
    with old_database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    assert select_rows(old_database, "SELECT attempt, step FROM metrics ORDER BY id") == [
        *((1, step) for step in (1, 2, 3, 4)),
        *((2, step) for step in (1, 2, 3)),
    ]
    starts = "SELECT number, start_step, evaluated_step, saved_step FROM attempts ORDER BY number"
    assert select_rows(old_database, starts) == [
        (1, 0, 0, None),
        (2, 0, 0, None),
        (3, None, None, None),
    ]
    positions = "SELECT acknowledged_seq FROM stream_positions ORDER BY attempt_id"
    assert select_rows(old_database, positions) == [(4,), (3,), (0,)]


def read_items(curve: Curve) -> list[dict[str, Any]]:
    return json.loads(f"[{curve.items}]")


def test_what_stands_is_found_in_rows_of_before(old_database: Database) -> None:
    migrate(old_database)
    with old_database.read() as session:
        reports = ReportRepository(session)
        metrics = read_items(reports.read_curve("job_1", kind=None, attempt=None, after=0, limit=100))
        assert [(metric["attempt"], metric["step"]) for metric in metrics] == [(2, 1), (2, 2), (2, 3)]
        thinned = reports.read_thinned_curve("job_1", kind="step", attempt=None, after=0, max_points=1)
        assert [metric["step"] for metric in read_items(thinned)] == [3]
        assert len(read_items(reports.read_curve("job_1", kind="step", attempt=1, after=0, limit=100))) == 4
        assert (reports.get_last_report("job_1", "step") or {})["step"] == 3
        assert [attempt.number for attempt in reports.list_attempts_with_start("job_1")] == [1, 2]
    with old_database.write() as session:
        AttemptRepository(session).set_start("att_3", 2, 0)
    with old_database.read() as session:
        curve = ReportRepository(session).read_curve("job_1", kind=None, attempt=None, after=0, limit=100)
        assert [metric["step"] for metric in read_items(curve)] == [1, 2]
        job = JobRepository(session).get("job_1")
        assert job is not None
        assert job.restarts_at is None


def test_rows_written_after_the_upgrade_need_a_step_and_get_numbers_that_go_on(old_database: Database) -> None:
    migrate(old_database)
    names = {"job_id": "job_1", "attempt_id": "att_3", "attempt": 3, "rank": 0, "stream": "metrics", "kind": "step"}
    with pytest.raises(IntegrityError):
        insert(old_database, "metrics", **names, seq=1, report="{}")
    insert(old_database, "metrics", **names, seq=1, report="{}", step=1)
    assert select_rows(old_database, "SELECT COUNT(DISTINCT id), MAX(step) FROM metrics") == [(8, 4)]


def test_a_downgrade_leaves_the_tables_of_before_with_their_rows(old_database: Database) -> None:
    query = "SELECT id, attempt, seq, kind FROM metrics ORDER BY id"
    before = select_rows(old_database, query)
    migrate(old_database)
    migrate_to(old_database, "0001")
    assert select_rows(old_database, query) == before
    assert len(select_rows(old_database, "SELECT * FROM attempts")) == 3
    for column in ("metrics.step", "attempts.start_step", "attempts.evaluated_step", "jobs.restarts_at"):
        table, _, name = column.partition(".")
        assert name not in list_columns(old_database, table)
    migrate(old_database)
    assert select_rows(old_database, "SELECT COUNT(*) FROM metrics WHERE step > 0") == [(7,)]


def list_columns(database: Database, table: str) -> set[str]:
    with database.engine.connect() as connection:
        return set(connection.execute(text(f"SELECT * FROM {table}")).keys())
