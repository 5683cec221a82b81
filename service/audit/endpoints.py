"""Endpoint of the audit log."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.access.senders import Admin
from service.audit.log import Audit
from service.audit.models import AuditAction
from service.audit.repository import AuditFilter
from service.http.paging import Cursor, Page, parse_serial_cursor
from service.http.problem_kinds import may_answer
from service.http.query import STORABLE, FilterTime
from service.http.route import ApiRoute
from service.schemas import AuditEvent

router = APIRouter(prefix="/v1", tags=["audit"], route_class=ApiRoute)


@router.get("/audit")
@may_answer("forbidden")
def list_audit_events(
    audit: Audit,
    _: Admin,
    actor: Annotated[
        str | None,
        Query(max_length=63, pattern=STORABLE, description="owner of the key that acted, without the character NUL"),
    ] = None,
    action: AuditAction | None = None,
    target: Annotated[
        str | None,
        Query(
            max_length=255, pattern=STORABLE, description="id or name of what was changed, without the character NUL"
        ),
    ] = None,
    since: Annotated[FilterTime | None, Query(description="earliest time")] = None,
    until: Annotated[FilterTime | None, Query(description="time before which the events are")] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Page[AuditEvent]:
    """List the rows of the audit log, newest first."""
    before = None if cursor is None else parse_serial_cursor(cursor)
    chosen = AuditFilter(actor=actor, action=action, target=target, since=since, until=until)
    return audit.list_page(chosen, before=before, limit=limit)
