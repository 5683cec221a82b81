"""Times that jobs wait for, and how they move where a clock is set."""

from datetime import timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.jobs.attempt_repository import ACTIVE_STATES
from service.jobs.models import Attempt, Job
from service.jobs.states import NOT_ENDED

_TIMES = (
    (Job, Job.deadline_at, Job.state.in_(NOT_ENDED)),
    (Job, Job.restarts_at, Job.state.in_(NOT_ENDED)),
    (Job, Job.at_head_since, Job.state.in_(NOT_ENDED)),
    (Attempt, Attempt.stop_requested_at, Attempt.state.in_(ACTIVE_STATES)),
    (Attempt, Attempt.lease_expires_at, Attempt.state.in_(ACTIVE_STATES)),
)
"""Columns whose times are compared with the present, in rows of jobs and attempts that have not ended."""


def move_times(session: Session, jump: timedelta) -> None:
    """Move all times that are waited for by a jump of the clock, so that they are as far away as before."""
    for table, column, is_open in _TIMES:
        rows = session.execute(select(table.id, column).where(is_open, column.is_not(None))).all()
        if rows:
            session.execute(update(table), [{"id": key, column.key: at + jump} for key, at in rows if at is not None])
