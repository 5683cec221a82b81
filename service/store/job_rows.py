"""The part of a job that lists and forecasts of the queue read: some columns, without an object of the session."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import func

from service.store.models import Job

MAX_MESSAGE_CHARACTERS = 160
"""Characters of a message in a list."""


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
    progress: dict[str, Any]


COLUMNS = tuple(
    func.substr(Job.message, 1, MAX_MESSAGE_CHARACTERS + 1) if field.name == "message" else getattr(Job, field.name)
    for field in fields(JobRow)
)
"""Columns of a query for rows, in the order of the fields of `JobRow`."""


def cut_message(message: str) -> str:
    """Cut a message to what a list shows of it."""
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else message[: MAX_MESSAGE_CHARACTERS - 1] + "…"
