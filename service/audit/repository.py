"""SQL statements on the audit log."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from service.audit.models import AuditAction, AuditEvent


@dataclass(frozen=True)
class AuditFilter:
    """Filter of audit events; one that is None does not restrict."""

    actor: str | None = None
    action: AuditAction | None = None
    target: str | None = None
    since: datetime | None = None
    """Earliest time."""
    until: datetime | None = None
    """Time before which the events are."""


class AuditRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, event: AuditEvent) -> None:
        self._session.add(event)

    def list_page(self, chosen: AuditFilter, *, before: int | None, limit: int) -> list[AuditEvent]:
        """List at most `limit` events, newest first, that match the filter and have an id below `before`."""
        query = select(AuditEvent).order_by(AuditEvent.id.desc()).limit(limit)
        if before is not None:
            query = query.where(AuditEvent.id < before)
        equal = {"actor": chosen.actor, "action": chosen.action, "target": chosen.target}
        query = query.filter_by(**{name: value for name, value in equal.items() if value is not None})
        if chosen.since is not None:
            query = query.where(AuditEvent.time >= chosen.since)
        if chosen.until is not None:
            query = query.where(AuditEvent.time < chosen.until)
        return list(self._session.scalars(query))

    def remove_older(self, before: datetime, limit: int) -> None:
        """Remove at most `limit` of the oldest events before a time; those that another transaction removes are left
        to it."""
        oldest = select(AuditEvent.id).where(AuditEvent.time < before).order_by(AuditEvent.time).limit(limit)
        self._session.execute(
            delete(AuditEvent)
            .where(AuditEvent.id.in_(oldest.with_for_update(skip_locked=True)))
            .execution_options(synchronize_session=False)
        )
