"""The part of a job that lists show: some columns, without an object of the session."""

from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import JSON, ColumnElement, func, literal_column, select
from sqlalchemy.orm import Session

from service.store.models import Job, JobLabel

MAX_MESSAGE_CHARACTERS = 160
"""Characters of a message in a list."""
JOBS, LABELS = Job.__table__.c, JobLabel.__table__.c
"""Columns for statements without the mapping to objects, which would take half of the time of a list."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """Columns of a row of `jobs`. At most one character of `message` is there beyond what `cut_message` leaves."""

    id: str
    name: str
    owner: str
    priority: int
    state: str
    reason: str
    message: str
    has_warnings: bool
    is_held: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    restarts_at: datetime | None
    num_attempts: int
    launcher: str
    world_size: int
    num_nodes: int
    min_nodes: int
    num_cores: int
    memory_bytes: int
    num_gpus: int
    batch: int | None
    optimizer: str | None
    progress: dict[str, Any]
    labels: dict[str, str]


_GROUPS = {"sqlite": func.json_group_object, "postgresql": func.json_object_agg}
"""Function by kind of database that makes a JSON object of rows with a name and a value."""


def get_columns(session: Session) -> tuple[ColumnElement[Any], ...]:
    """Return the columns of a query for rows, in the order of the fields of `JobRow`."""
    return _get_columns(session.get_bind().dialect.name)


@cache
def _get_columns(dialect: str) -> tuple[ColumnElement[Any], ...]:
    labels = select(_GROUPS[dialect](LABELS.name, LABELS.value, type_=JSON)).where(LABELS.job_id == JOBS.id)
    computed: dict[str, ColumnElement[Any]] = {
        "message": func.substr(JOBS.message, 1, MAX_MESSAGE_CHARACTERS + 1),
        "labels": func.coalesce(labels.correlate(Job.__table__).scalar_subquery(), literal_column("'{}'"), type_=JSON),
    }
    return tuple(computed[field.name] if field.name in computed else JOBS[field.name] for field in fields(JobRow))


def cut_message(message: str) -> str:
    """Cut a message to what a list shows of it."""
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else message[: MAX_MESSAGE_CHARACTERS - 1] + "…"
