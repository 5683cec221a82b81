"""Upgrade of the jobs of a version that kept their documents in the same row."""

import json
from typing import Any

from alembic import command
from sqlalchemy import text

from service.database import Database
from service.database.migrate import make_config, migrate
from service.store.job_repository import JobRepository
from tests.service.databases import on_both_databases, on_sqlite

pytestmark = on_both_databases

SOURCE = "job_01J00000000000000000000000"
HEIR = "job_01J00000000000000000000001"
PLACEMENT = {"queue": "ads", "node_selector": {"pool": "large"}}
DECIDED = {"derived": [{"name": "world_size", "value": 1}, {"name": "batch.global_size", "value": 1024}]}
COLUMNS = {
    "name": "first",
    "priority": 3,
    "reason": "completed",
    "message": "",
    "created_at": "2026-01-31 12:00:00+00:00",
    "created_by": "laptop",
    "num_attempts": 1,
    **dict.fromkeys(("world_size", "num_cores", "memory_bytes", "num_gpus"), 1),
    "run_directory": "/runs/first",
}


def add_job(database: Database, job_id: str, state: str, **documents: dict[str, Any]) -> None:
    """Add a row as the version of before has written it."""
    values = {"id": job_id, "state": state, **COLUMNS, **{name: json.dumps(part) for name, part in documents.items()}}
    names = ", ".join(values)
    with database.write() as session:
        session.execute(text(f"INSERT INTO jobs ({names}) VALUES (:{', :'.join(values)})"), values)
        session.execute(text("INSERT INTO job_labels VALUES (:job, 'team', 'Ads')"), {"job": job_id})


def make_tables_of_before(database: Database) -> None:
    with database.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE").begin() as connection:
        command.upgrade(make_config(connection), "0007")


def make_spec(source: str, **changes: Any) -> dict[str, Any]:
    spec = {"max_restarts": 5, "deadline_seconds": None, "resources": {"kubernetes": None}}
    return {**spec, "run": {"warm_start": {"from": source}}, **changes}


def test_jobs_of_before_keep_their_documents_and_have_the_new_columns(database: Database) -> None:
    make_tables_of_before(database)
    hopeless = {"auc": 0.5, "auc_standard_error": 0.1, "samples_per_second": 1e3}
    add_job(
        database,
        SOURCE,
        "SUCCEEDED",
        spec=make_spec("/data/model", deadline_seconds=60, resources={"kubernetes": PLACEMENT}),
        resolved=DECIDED,
        progress={"auc": 0.4, "step": 7},
        metrics=hopeless,
    )
    heir_spec = make_spec(SOURCE, batch={"global_size": 4096}, dense_optimizer={"name": "lamb"})
    add_job(database, HEIR, "QUEUED", spec=heir_spec, resolved={"job": {}}, progress={"auc": 0.4}, metrics={})
    migrate(database)
    with database.read() as session:
        jobs = JobRepository(session)
        source, heir = jobs.get(SOURCE), jobs.get(HEIR)
        assert source is not None
        assert heir is not None
        assert (source.max_restarts, source.deadline_seconds, source.placement) == (5, 60, PLACEMENT)
        assert (source.warm_start_job_id, heir.warm_start_job_id, heir.deadline_seconds) == (None, SOURCE, None)
        assert (source.has_warnings, heir.has_warnings, heir.placement) == (True, False, None)
        assert source.progress == {"auc": 0.5, "step": 7, "samples_per_second": 1e3}
        assert heir.progress == {"auc": 0.4}
        document = jobs.get_document(SOURCE)
        assert (document.resolved, document.metrics) == (DECIDED, hopeless)
        assert jobs.get_document(HEIR).spec == heir_spec
        assert (source.batch, source.optimizer, heir.batch, heir.optimizer) == (1024, None, 4096, "lamb")
        assert (jobs.find_heir(SOURCE), jobs.get_labels(HEIR)) == (heir, {"team": "Ads"})


@on_sqlite
def test_numbers_that_are_not_finite_become_null(database: Database) -> None:
    make_tables_of_before(database)
    nan, infinity = float("nan"), float("inf")
    add_job(
        database,
        SOURCE,
        "SUCCEEDED",
        spec=make_spec("/data/model", name="Räder", limits=[infinity]),
        resolved={"derived": [nan]},
        progress={"auc": 0.4, "loss": -infinity},
        metrics={"auc": nan, "log_loss": infinity, "samples_per_second": 1e3},
    )
    add_job(database, HEIR, "QUEUED", spec=make_spec(SOURCE), resolved={}, progress={"loss": nan}, metrics={})
    event = {"job": SOURCE, "details": json.dumps({"step": 7, "loss": nan})}
    with database.write() as session:
        session.execute(
            text(
                "INSERT INTO events (job_id, time, actor, kind, message, details) "
                "VALUES (:job, '2026-01-31 12:00:00', '', 'run', '', :details)"
            ),
            event,
        )
    migrate(database)
    with database.read() as session:
        jobs = JobRepository(session)
        source, heir, document = jobs.get(SOURCE), jobs.get(HEIR), jobs.get_document(SOURCE)
        assert source is not None
        assert heir is not None
        assert source.progress == {"auc": 0.4, "loss": None, "samples_per_second": 1e3}
        assert heir.progress == {"loss": None}
        assert document.spec == make_spec("/data/model", name="Räder", limits=[None])
        assert document.resolved == {"derived": [None]}
        assert document.metrics == {"auc": None, "log_loss": None, "samples_per_second": 1e3}
        assert session.scalar(text("SELECT details FROM events")) == '{"step": 7, "loss": null}'
