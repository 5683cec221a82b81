"""SQL statements on the leader and on the leases of attempts."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select, text, update
from sqlalchemy.orm import Session

from service.leader.models import LeaderRow
from service.store.models import IS_ACTIVE, Attempt, Job
from service.store.states import NOT_ENDED
from service.times import Comparison

ROW = 1
"""Id of the only row."""
END_STOPPED_HOLDERS = text(
    """
    SELECT activity.pid, pg_terminate_backend(activity.pid) FROM pg_locks
    JOIN pg_stat_activity AS activity ON activity.pid = pg_locks.pid
    JOIN leadership ON leadership.renewed_at = :renewed_at
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND (classid::bigint << 32 | objid::bigint) = :key
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND activity.backend_start < clock_timestamp() - make_interval(secs => :seconds)
    """
)
"""End of the connections that hold an advisory lock while the leader renews nothing; only PostgreSQL has them.

A connection that is new is left alone: its process has just become the leader, and has yet to write that down."""


@dataclass(frozen=True)
class Lease:
    """Right to act on attempts until a time, which the process `owner` renews for as long as it leads."""

    owner: str
    token: int
    expires_at: datetime


class LeaderRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def get_or_add(self, service_id: str, at: datetime) -> LeaderRow:
        """Return the row, which is made with `service_id` if there is none yet."""
        row = self._session.get(LeaderRow, ROW, with_for_update=True, populate_existing=True)
        if row is None:
            row = LeaderRow(id=ROW, token=0, owner="", service_id=service_id, since=at)
            self._session.add(row)
            self._session.flush()
        return row

    def get(self) -> LeaderRow | None:
        """Return the row; None if absent yet."""
        return self._session.get(LeaderRow, ROW)

    def find_missed_jump(self, comparison: Comparison) -> timedelta:
        """Find by how much the clock was set since the last leader renewed its leases; 0 if unknown."""
        row = self.get()
        if row is None or row.renewed_at is None:
            return timedelta(0)
        if row.renewed_at > comparison.time:
            return comparison.time - row.renewed_at
        is_missed = comparison.jump > timedelta(0) and row.renewed_at <= comparison.time - comparison.jump
        return comparison.jump if is_missed else timedelta(0)

    def begin_term(self, owner: str, capacity: dict[str, Any], at: datetime) -> tuple[int, str | None]:
        """Record a new leader, with a token above all earlier ones.

        Returns the token, and the owner of the term before; None if absent.
        """
        row = self._session.get_one(LeaderRow, ROW, with_for_update=True, populate_existing=True)
        before = row.owner or None
        row.token, row.owner, row.since = row.token + 1, owner, at
        row.renewed_at, row.capacity = at, capacity
        self._session.flush()
        return row.token, before

    def lock_token(self) -> int | None:
        """Return the token of the leader; no other process becomes leader until the transaction ends."""
        return self._session.scalar(select(LeaderRow.token).where(LeaderRow.id == ROW).with_for_update(read=True))

    def renew(self, lease: Lease, capacity: dict[str, Any], at: datetime) -> None:
        """Renew the lease of all active attempts that have it, and record its holder as the leader, with `capacity`."""
        self._session.execute(update(LeaderRow).where(LeaderRow.id == ROW).values(renewed_at=at, capacity=capacity))
        self.expire(lease.token, lease.expires_at)

    def adopt(self, lease: Lease, at: datetime, *, ended_owner: str | None) -> list[Attempt]:
        """Give the lease to all active attempts without one, with an expired one, or with a leader known to have ended;
        return them.

        ended_owner: leader whose process has ended; None if that is not known.
        """
        is_free = or_(
            Attempt.lease_token.is_(None), Attempt.lease_expires_at <= at, Attempt.lease_owner == (ended_owner or "")
        )
        is_other = or_(Attempt.lease_token.is_(None), Attempt.lease_token != lease.token)
        query = select(Attempt).where(IS_ACTIVE, is_other, is_free)
        attempts = list(self._session.scalars(query))
        for attempt in attempts:
            attempt.lease_owner, attempt.lease_token = lease.owner, lease.token
            attempt.lease_expires_at = lease.expires_at
        self._session.flush()
        return attempts

    def end_stopped_holders(self, key: int, renewed_at: datetime, seconds: float) -> list[int]:
        """End the connections that hold the advisory lock `key` if the leader has renewed nothing since `renewed_at`.

        Those of the last `seconds` stay. Returns the numbers of the others; needs PostgreSQL.
        """
        values = {"key": key, "renewed_at": renewed_at, "seconds": seconds}
        return list(self._session.scalars(END_STOPPED_HOLDERS, values))

    def expire(self, token: int, at: datetime) -> None:
        """Let all leases of a leader end at a time; now if it stops, so that the next one need not wait."""
        self._session.execute(
            update(Attempt).where(IS_ACTIVE, Attempt.lease_token == token).values(lease_expires_at=at)
        )


_TIMES = (
    (Job, Job.deadline_at, Job.state.in_(NOT_ENDED)),
    (Job, Job.restarts_at, Job.state.in_(NOT_ENDED)),
    (Job, Job.at_head_since, Job.state.in_(NOT_ENDED)),
    (Attempt, Attempt.stop_requested_at, IS_ACTIVE),
    (Attempt, Attempt.lease_expires_at, IS_ACTIVE),
)
"""Columns of times to compare with the present, in rows of jobs and attempts that have not ended."""


def move_times(session: Session, jump: timedelta) -> None:
    """Move all times that are waited for by a jump of the clock, so that they are as far away as before."""
    for table, column, is_open in _TIMES:
        rows = session.execute(select(table.id, column).where(is_open, column.is_not(None))).all()
        if rows:
            session.execute(update(table), [{"id": key, column.key: at + jump} for key, at in rows if at is not None])
