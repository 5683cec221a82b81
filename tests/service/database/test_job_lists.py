"""Lists of jobs take no longer for the jobs of the past."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, text
from ulid import ULID

from service.database import Database
from service.database.migrate import migrate
from service.store.job_lists import JobFilter, JobLists
from service.store.models import Job
from service.store.states import JobState
from tests.service.databases import on_both_databases
from tests.service.query_plans import count_read_rows, record_statements

pytestmark = on_both_databases

NUM_JOBS = 20_000
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
    "with a label that all have": JobFilter(labels=(("a", "b"),)),
    "with a text that none has": JobFilter(text="nothing-like-it"),
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


def count_rows_of_list(database: Database, chosen: JobFilter, owner: str | None) -> float:
    """List jobs, and return about how many rows the statements read."""
    with record_statements(database) as statements, database.read() as session:
        assert len(JobLists(session).list_page(chosen, visible_owner=owner, before=None, limit=51)) <= 51
    return sum(count_read_rows(database, statement) for statement in statements)


@pytest.mark.slow
def test_a_list_reads_about_as_many_jobs_as_it_returns(full_database: Database) -> None:
    for name, chosen in FILTERS.items():
        for owner in (None, "alice", "bob", "nobody"):
            num_rows = count_rows_of_list(full_database, chosen, owner)
            # The steps of a plan of PostgreSQL each count the rows that they pass on.
            assert num_rows < NUM_JOBS / 3, f"{name}, {owner}: {num_rows}"


@pytest.mark.slow
def test_jobs_of_one_name_are_found_without_the_others(full_database: Database) -> None:
    assert count_rows_of_list(full_database, JobFilter(name="dlrm"), None) < 1000
