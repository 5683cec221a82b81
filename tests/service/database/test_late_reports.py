"""Reports that arrive while the end of their attempt is being recorded."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select, text

from service.access.secret import hash_secret
from service.database import Database
from service.database.migrate import migrate
from service.http.problems import ProblemError
from service.ids import new_id
from service.observability.telemetry import Telemetry
from service.reasons import Reason
from service.reports.ingest import Stream
from service.reports.repository import ReportRepository
from service.reports.schemas import NewReports
from service.reports.service import ReportService
from service.store.attempt_repository import AttemptRepository
from service.store.job_repository import JobRepository
from service.store.metric_tables import STEPS
from service.store.models import Attempt, Job, JobDocument
from service.store.states import AttemptState
from service.times import now
from tests.made_reports import make_step_line
from tests.patience import wait_until
from tests.service.databases import on_both_databases

pytestmark = on_both_databases

TOKEN = "attempt-token"


def add_running_attempt(database: Database) -> Attempt:
    fixed: dict[str, Any] = {"progress": {}, "run_directory": "/nowhere"}
    sizes = {"priority": 0, "num_attempts": 1, "world_size": 1, "num_cores": 1, "memory_bytes": 1, "num_gpus": 0}
    names = {"name": "first", "created_by": "somebody", "owner": "somebody", "reason": "process_started", "message": ""}
    job = Job(id=new_id("job"), state="RUNNING", created_at=now(), **names, **sizes, **fixed)
    document = JobDocument(job_id=job.id, spec={}, resolved={}, metrics={})
    attempt = Attempt(
        id=new_id("att"),
        job_id=job.id,
        number=1,
        state="RUNNING",
        message="",
        stop_message="",
        token_hash=hash_secret(TOKEN),
        started_at=now(),
    )
    with database.write() as session:
        JobRepository(session).add(job, document, {}, actor="somebody", message="")
        AttemptRepository(session).add(attempt)
    return attempt


def is_somebody_waiting(database: Database) -> bool:
    """Whether a transaction waits for a lock of another one, as far as the database tells; SQLite does not."""
    if database.engine.dialect.name == "sqlite":
        return True
    with database.read() as session:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(session.execute(text(query)).scalar_one())


def test_a_push_that_meets_the_end_of_its_attempt_stores_nothing(database: Database) -> None:
    migrate(database)
    attempt = add_running_attempt(database)
    reports = ReportService(database, Telemetry())

    def push(first_seq: int) -> int:
        lines = [make_step_line(first_seq)]
        return reports.push(
            attempt.id, TOKEN, NewReports(rank=0, stream=Stream.METRICS, first_seq=first_seq, lines=lines)
        )

    assert push(1) == 1
    with ThreadPoolExecutor(1) as pool:
        with database.write() as session:
            JobRepository(session).lock(attempt.job_id)
            AttemptRepository(session).finish(
                attempt.id, AttemptState.SUCCEEDED, Reason.COMPLETED, "", exit_code=0, at=now()
            )
            late = pool.submit(push, 2)
            wait_until(lambda: is_somebody_waiting(database))
        with pytest.raises(ProblemError) as refused:
            late.result()
    assert refused.value.status == 410
    with database.read() as session:
        assert ReportRepository(session).get_acknowledged_seq(attempt.id, 0, Stream.METRICS) == 1
        assert list(session.scalars(select(STEPS.c.seq))) == [1]
