"""Schedules and webhooks."""

from datetime import datetime
from typing import Any

from pydantic import Field

from service.schemas.answers import Answer


class Schedule(Answer, frozen=True):
    """Schedule: a job document that is submitted at the times of a cron expression."""

    id: str
    """Id of the schedule: `sch_` and a ULID."""
    name: str
    """Name of the schedule, which its jobs have as the label `schedule`."""
    owner: str
    """Owner of the schedule and of its jobs."""
    key_id: str = ""
    """Id of the key that it acts with: it submits nothing once that is revoked or has expired."""
    cron: str
    """Cron expression: minute, hour, day of the month, month, day of the week."""
    time_zone: str
    """Time zone of the expression and of the document."""
    document: dict[str, Any]
    """Job document, with placeholders."""
    is_paused: bool
    """Whether nothing is submitted."""
    created_at: datetime
    """Time at which it was made."""
    next_at: datetime | None = None
    """Time of the next submission; None while it is paused, unless somebody has it run now."""
    last_due_at: datetime | None = None
    """Time that was due last; None before the first one."""
    last_result: str | None = None
    """Result of that time in words, such as a job or why there is none; None before the first one."""
    last_job_id: str | None = None
    """Job that was submitted last; None before the first one."""
    previous_job_id: str | None = None
    """Job that `{previous_job}` stands for: the last one that has succeeded; None before the first one."""
    previous_due_at: datetime | None = None
    """Time up to which the rows of that job reach; None before the first one."""


class Webhook(Answer, frozen=True):
    """Webhook: a URL that gets a signed request for each chosen change of a job's state."""

    id: str
    """Id of the webhook: `whk_` and a ULID."""
    owner: str
    """Owner of the jobs; `*` for all owners."""
    key_id: str = ""
    """Id of the key that made it: nothing is sent once that is revoked or has expired."""
    url: str
    """URL that gets the requests."""
    states: list[str]
    """States whose beginning is sent."""
    labels: dict[str, str] = Field(default={})
    """Labels that a job must all have."""
    created_at: datetime
    """Time at which it was made."""
    num_waiting: int = 0
    """Number of requests that are still to be answered with success."""
    stopped_because: str | None = None
    """Reason why nothing is sent any more; None otherwise."""
    last_tried_at: datetime | None = None
    """Time of the last request; None before the first one."""
    last_result: str | None = None
    """Status of the last request, or why there was none; None before the first one."""
    secret: str | None = Field(default=None, repr=False)
    """Secret of the signatures; None but in the answer that makes the webhook."""
