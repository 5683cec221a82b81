"""A database with many jobs of the past, for tests of query plans and for benchmarks."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, text
from sqlalchemy.orm import Session
from ulid import ULID

from dlrm.config import parse_job
from service.database import Database
from service.ids import new_id
from service.reports.rollups import RollupRepository
from service.store.job_texts import make_text
from service.store.models import Attempt, Job, JobDocument, JobLabel, JobText

START = datetime(2026, 1, 1, tzinfo=UTC)
INTERVAL = timedelta(minutes=1)
OWNERS = ("ads", "feed", "search", "video", "team")
NAMES = ("retrain-daily", "sweep", "ablation", "warm-start", "large-batch")
STATES = {"SUCCEEDED": 92, "FAILED": 4, "CANCELLED": 3, "QUEUED": 1}
"""States of the jobs, and how many percent have each."""
EVENTS = {"submitted": "QUEUED", "scheduled": "STARTING", "process_started": "RUNNING", "completed": "SUCCEEDED"}
ROWS_AT_ONCE = 5000
METRICS = {"auc": 0.7512, "log_loss": 0.4512, "samples_per_second": 123_456.7, "num_rows": 100_000.0}
SPEC = parse_job({"data": {"train": ["day_*.tsv"]}, "batch": {"global_size": 4096}}).model_dump(mode="json")
RESOLVED: dict[str, Any] = {"job": {"batch": {"global_size": 4096}}, "derived": []}


def seed(database: Database, num_jobs: int, num_steps: int) -> str:
    """Add `num_jobs` jobs with four events each, and a running one of `num_steps` steps, the oldest; return its id.

    The running job holds all that one machine has, so that jobs of the state QUEUED wait. Nobody looks after it: its
    attempt is of another machine. The statistics of the database are made anew at the end.
    """
    rows = random.Random(7)
    with database.write() as session:
        long_job = make_job(rows, -1) | {"state": "RUNNING", "memory_bytes": 2**40, "finished_at": None}
        add_jobs(session, [long_job])
        _add_attempt(session, long_job["id"])
        for first in range(0, num_jobs, ROWS_AT_ONCE):
            numbers = range(first, min(first + ROWS_AT_ONCE, num_jobs))
            add_jobs(session, [make_job(rows, number) for number in numbers])
        add_events(session)
        session.execute(
            text(
                "INSERT INTO attempts (id, job_id, number, state, message, token_hash, started_at, finished_at,"
                " stop_message) "
                "SELECT replace(id, 'job', 'att'), id, 1, 'SUCCEEDED', '', '', started_at, finished_at, '' FROM jobs "
                "WHERE state NOT IN ('QUEUED', 'RUNNING')"
            )
        )
        add_steps(session, long_job["id"], num_steps)
        session.execute(
            text("INSERT INTO run_sizes (job_id, num_bytes) SELECT id, 1000000 FROM jobs WHERE finished_at IS NOT NULL")
        )
    with database.write() as session:
        session.execute(text("ANALYZE"))
    return long_job["id"]


def make_job(rows: random.Random, number: int) -> dict[str, Any]:
    """Make the columns of the job `number`, counted from the oldest one."""
    created_at = START + number * INTERVAL
    state = rows.choices(list(STATES), list(STATES.values()))[0]
    is_started = state != "QUEUED"
    progress = {"phase": None, "step": 1000, "num_steps": 1000, "done_fraction": 1.0, "loss": 0.45123456789}
    return {
        "id": f"job_{ULID.from_datetime(created_at)}",
        "name": f"{rows.choice(NAMES)}-{number % 1000}",
        "owner": rows.choice(OWNERS),
        "priority": rows.randrange(3),
        "state": state,
        "reason": "completed" if state == "SUCCEEDED" else state.lower(),
        "message": "" if state == "SUCCEEDED" else "as its end has told",
        "created_at": created_at,
        "created_by": "laptop",
        "started_at": created_at if is_started else None,
        "finished_at": created_at + timedelta(minutes=rows.randrange(1, 1000)) if is_started else None,
        "num_attempts": int(is_started),
        "is_held": False,
        "launcher": "local",
        **dict.fromkeys(("world_size", "num_nodes", "min_nodes", "num_cores"), 1),
        "memory_bytes": 2**30,
        "num_gpus": 0,
        "max_restarts": 3,
        "batch": 4096,
        "optimizer": "adamw",
        "progress": {**progress, "auc": 0.75123456, "samples_per_second": 123456.789} if is_started else {},
        "run_directory": f"/runs/{number}",
    }


def add_jobs(session: Session, jobs: list[dict[str, Any]]) -> None:
    """Add jobs with a document, labels and a text each."""
    labels = {job["id"]: _make_labels(number, job["id"]) for number, job in enumerate(jobs)}
    document = {"spec": SPEC, "resolved": RESOLVED}
    session.execute(insert(Job), jobs)
    session.execute(
        insert(JobDocument),
        [{"job_id": job["id"], **document, "metrics": METRICS if job["finished_at"] else {}} for job in jobs],
    )
    session.execute(
        insert(JobLabel),
        [
            {"job_id": job_id, "name": name, "value": value}
            for job_id, own in labels.items()
            for name, value in own.items()
        ],
    )
    texts = [
        {"job_id": job["id"], "text": make_text(job["id"], job["name"], job["owner"], labels[job["id"]])}
        for job in jobs
    ]
    session.execute(insert(JobText), texts)


def add_events(session: Session) -> None:
    """Add four events to each job."""
    for reason, state in EVENTS.items():
        session.execute(
            text(
                "INSERT INTO events (job_id, time, actor, kind, to_state, reason, message, details) "
                "SELECT id, created_at, owner, 'state', :state, :reason, 'as the scheduler has found', '{}' FROM jobs"
            ),
            {"reason": reason, "state": state},
        )


def _make_labels(number: int, job_id: str) -> dict[str, str]:
    """Make a label of many jobs, a label of some, and for one job in ten a label that only it has."""
    labels = {"team": OWNERS[number % len(OWNERS)], "sweep": f"sweep-{number % 500}"}
    return labels | ({"trial": job_id[-12:].lower()} if number % 10 == 0 else {})


def _add_attempt(session: Session, job_id: str) -> None:
    values = {"state": "RUNNING", "token_hash": "", "started_at": START, "start_step": 0, "node": "elsewhere"}
    session.execute(insert(Attempt), [{"id": new_id("att"), "job_id": job_id, "number": 1, **values}])


def add_steps(session: Session, job_id: str, num_steps: int) -> None:
    """Add the reports of `num_steps` steps to the first attempt of a job, and their levels."""
    session.execute(
        text(
            "INSERT INTO steps (job_id, attempt, step, seq, time, num_steps, num_samples, loss, dense_learning_rate,"
            " table_learning_rate, samples_per_second, dropped) "
            "WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < :number) "
            "SELECT :job, 1, i, i, 1.75e9, :number, CAST(4096 AS BIGINT) * i, 0.4512 + 0.001 * (i % 97), 1e-3, 1e-2,"
            " 1.2e5, 0 FROM numbers"
        ),
        {"job": job_id, "number": num_steps},
    )
    RollupRepository(session).update(job_id, 1, 1, num_steps, 0)
