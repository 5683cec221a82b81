"""Lists of jobs take no longer for the jobs of the past."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, text
from ulid import ULID

from service.database import Database
from service.database.migrate import migrate
from service.store.filters import JobFilter
from service.store.job_lists import JobLists
from service.store.models import Job
from service.store.states import JobState
from tests.service.databases import on_both_databases

pytestmark = on_both_databases

NUM_JOBS = 20_000
STEPS_PER_ROW = 5
"""Steps of SQLite's virtual machine that reading a row takes at least."""
START = datetime(2026, 1, 1, tzinfo=UTC)
MIDDLE = START + timedelta(minutes=NUM_JOBS / 2)
ENDED = (JobState.SUCCEEDED, JobState.FAILED)
FILTERS = {
    "all": JobFilter(),
    "of one state that most jobs have": JobFilter(states=(JobState.SUCCEEDED,)),
    "of one state that no job has": JobFilter(states=(JobState.PAUSED,)),
    "of several states": JobFilter(states=(*ENDED, JobState.RUNNING)),
    "of some time": JobFilter(created_after=MIDDLE, created_before=MIDDLE + timedelta(hours=1)),
    "of an early time": JobFilter(created_before=START + timedelta(hours=1)),
    "of several states and some time": JobFilter(states=ENDED, created_before=MIDDLE),
}


@pytest.fixture
def full_database(database: Database) -> Database:
    migrate(database)
    with database.write() as session:
        session.execute(insert(Job), [make_row(number) for number in range(NUM_JOBS)])
        session.execute(text("INSERT INTO job_labels (job_id, name, value) SELECT id, 'a', 'b' FROM jobs"))
    if database.engine.dialect.name == "postgresql":
        with database.write() as session:
            session.execute(text("ANALYZE"))
    return database


def make_row(number: int) -> dict[str, Any]:
    time = START + timedelta(minutes=number)
    return {
        "id": f"job_{ULID.from_datetime(time)}",
        "name": "dlrm",
        "priority": 0,
        "state": "FAILED" if number % 10 == 0 else "SUCCEEDED",
        "reason": "completed",
        "message": "",
        "created_at": time,
        "created_by": "laptop",
        "owner": "bob" if number % 10 == 1 else "alice",
        "num_attempts": 1,
        "is_held": False,
        "launcher": "local",
        **dict.fromkeys(("world_size", "num_nodes", "num_cores", "memory_bytes", "num_gpus"), 1),
        "progress": {"a": "b" * 1000},
        "run_directory": "",
    }


def list_jobs(database: Database, chosen: JobFilter, owner: str | None) -> tuple[str, Any]:
    """List jobs, and return the statement that finds their ids, with its parameters."""
    statements: list[tuple[str, Any]] = []

    def record(_: Connection, __: object, statement: str, parameters: Any, *___: object) -> None:
        if "jobs" in statement:
            statements.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", record)
    with database.read() as session:
        assert len(JobLists(session).list_page(chosen, visible_owner=owner, before=None, limit=51)) <= 51
    event.remove(database.engine, "before_cursor_execute", record)
    return statements[0]


def count_read_rows(database: Database, statement: str, parameters: Any) -> float:
    """Return about how many rows a statement reads."""
    with database.engine.connect() as connection:
        if database.engine.dialect.name == "postgresql":
            (plan,) = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
            return _sum_rows(plan["Plan"])
        num_steps = 0

        def count() -> None:
            nonlocal num_steps
            num_steps += 1

        sqlite = connection.connection.driver_connection
        assert sqlite is not None
        sqlite.set_progress_handler(count, 1)
        connection.exec_driver_sql(statement, parameters).all()
        sqlite.set_progress_handler(None, 0)
        return num_steps / STEPS_PER_ROW


def _sum_rows(plan: dict[str, Any]) -> float:
    num_rows = plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))
    return num_rows + sum(_sum_rows(part) for part in plan.get("Plans", []))


@pytest.mark.slow
def test_a_list_reads_about_as_many_jobs_as_it_returns(full_database: Database) -> None:
    for name, chosen in FILTERS.items():
        for owner in (None, "alice", "bob", "nobody"):
            num_rows = count_read_rows(full_database, *list_jobs(full_database, chosen, owner))
            assert num_rows < 1000, f"{name}, {owner}: {num_rows}"


@pytest.mark.slow
def test_jobs_of_one_name_are_found_without_the_others(full_database: Database) -> None:
    assert count_read_rows(full_database, *list_jobs(full_database, JobFilter(name="dlrm"), None)) < 1000
