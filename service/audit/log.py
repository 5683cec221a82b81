"""Audit log: rows that are written in the transaction of what they record, and removed when they are old."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from sqlalchemy.orm import Session

from service import schemas
from service.access.principal import Actor
from service.audit.models import AuditAction, AuditEvent
from service.audit.repository import AuditFilter, AuditRepository
from service.database import Database
from service.http.paging import Page
from service.parts import depend_on
from service.times import now

NUM_REMOVED = 100
"""Number of old rows that one new row removes at most, so that no transaction takes long."""


class AuditLog:
    def __init__(self, database: Database, retention: timedelta) -> None:
        """Keep rows for `retention`."""
        self._database = database
        self._retention = retention

    def record(self, session: Session, actor: Actor, action: AuditAction, target: str, **details: Any) -> None:
        """Add a row in the transaction of `session`, and remove some of those that are too old.

        target: id or name of what was changed. details: values that JSON has.
        """
        self.record_all(session, actor, action, {target: details})

    def record_all(
        self, session: Session, actor: Actor, action: AuditAction, targets: Mapping[str, dict[str, Any]]
    ) -> None:
        """Add a row for each target, as `record` does. targets: details by id or name."""
        time = now()
        events = AuditRepository(session)
        events.remove_older(time - self._retention, NUM_REMOVED)
        for target, details in targets.items():
            events.add(
                AuditEvent(
                    time=time,
                    actor=actor.owner,
                    key_id=actor.key_id,
                    action=action.value,
                    target=_fit(target, 255),
                    address=_fit(actor.origin.address, 64),
                    request_id=_fit(actor.origin.request_id, 64),
                    details=details,
                )
            )

    def record_foreign(
        self, session: Session, actor: Actor, action: AuditAction, job_id: str, owner: str, **details: Any
    ) -> None:
        """Record what was done to a job where it belongs to another owner than the actor; else do nothing."""
        if actor.owner != owner:
            self.record(session, actor, action, job_id, owner=owner, **details)

    def list_page(self, chosen: AuditFilter, *, before: int | None, limit: int) -> Page[schemas.AuditEvent]:
        """Return one page of events, newest first. before: id of the last event of the previous page."""
        with self._database.read() as session:
            rows = AuditRepository(session).list_page(chosen, before=before, limit=limit + 1)
        views = [schemas.AuditEvent.model_validate(row) for row in rows[:limit]]
        return Page(items=views, next_cursor=str(views[-1].id) if len(rows) > limit else None)


Audit = Annotated[AuditLog, depend_on(AuditLog)]
"""Parameter type of an endpoint that needs the service."""


def _fit(text: str, num_letters: int) -> str:
    """Cut text to the width of its column. A proxy may name anything as the address of its client."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[:num_letters]
