"""Creation, change and removal of schedules."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from dlrm.config import ConfigError, format_count
from service import schemas
from service.access.principal import Principal
from service.access.visibility import refuse_browser
from service.audit.log import AuditLog
from service.audit.models import AuditAction
from service.database import Database
from service.http.problems import conflict, not_found
from service.ids import new_id
from service.jobs.document import parse_document
from service.parts import depend_on
from service.schedules.models import Schedule
from service.schedules.placeholders import Moment, fill_document
from service.schedules.repository import ScheduleRepository
from service.schedules.schemas import NewSchedule, ScheduleChanges
from service.schedules.times import find_next, parse_zone
from service.times import now

MAX_SCHEDULES = 100
"""Largest number of schedules of one owner."""
_EXAMPLE_ID = f"job_{'0' * 26}"
"""Id that stands for a previous job while a document is tried."""


class ScheduleService:
    """Operations on schedules. Those on one raise ProblemError if the sender may know of none with its id."""

    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database = database
        self._audit = audit

    def list_visible(self, principal: Principal) -> list[schemas.Schedule]:
        """List the schedules that the sender may know of, by name."""
        with self._database.read() as session:
            found = ScheduleRepository(session).list_visible(principal.visible_owner)
        return [schemas.Schedule.model_validate(schedule) for schedule in found]

    def get(self, schedule_id: str, principal: Principal) -> schemas.Schedule:
        with self._database.read() as session:
            return schemas.Schedule.model_validate(_get_visible(session, schedule_id, principal))

    def create(self, new: NewSchedule, principal: Principal) -> schemas.Schedule:
        """Make a schedule.

        Raises ConfigError if its document is invalid, and ProblemError if its name is taken, there are too many, or the
        sender has shown no key.
        """
        refuse_browser(principal, "make or change schedules")
        created_at = now()
        schedule = Schedule(
            id=new_id("sch"),
            owner=principal.owner,
            key_id=principal.key_id,
            created_at=created_at,
            next_at=find_next(new.cron, parse_zone(new.time_zone), created_at),
            is_paused=False,
            **new.model_dump(),
        )
        check_document(schedule)
        try:
            with self._database.write() as session:
                schedules = ScheduleRepository(session)
                if schedules.count(principal.owner) >= MAX_SCHEDULES:
                    most = format_count(MAX_SCHEDULES, "schedule")
                    raise conflict(f"{principal.owner} has {most}, and no more; remove one first")
                schedules.add(schedule)
                self._record(session, principal, AuditAction.SCHEDULE_CREATED, schedule)
        except IntegrityError:
            raise conflict(f"{principal.owner} already has a schedule named {new.name}; choose another name") from None
        return schemas.Schedule.model_validate(schedule)

    def change(self, schedule_id: str, changes: ScheduleChanges, principal: Principal) -> schemas.Schedule:
        """Change a schedule. From then on it acts with the key of the sender.

        Raises ConfigError as `create` does, and ProblemError if the sender has shown no key.
        """
        refuse_browser(principal, "make or change schedules")
        with self._database.write() as session:
            schedule = _get_visible(session, schedule_id, principal, for_update=True)
            for name, value in changes.model_dump(exclude_none=True).items():
                setattr(schedule, name, value)
            if principal.owner == schedule.owner:
                schedule.key_id = principal.key_id
            check_document(schedule)
            zone = parse_zone(schedule.time_zone)
            schedule.next_at = None if schedule.is_paused else find_next(schedule.cron, zone, now())
            self._record(session, principal, AuditAction.SCHEDULE_CHANGED, schedule)
            session.flush()
            return schemas.Schedule.model_validate(schedule)

    def run_now(self, schedule_id: str, principal: Principal) -> schemas.Schedule:
        """Make a schedule due at once."""
        with self._database.write() as session:
            schedule = _get_visible(session, schedule_id, principal, for_update=True)
            schedule.next_at = now()
            session.flush()
            return schemas.Schedule.model_validate(schedule)

    def remove(self, schedule_id: str, principal: Principal) -> None:
        with self._database.write() as session:
            schedule = _get_visible(session, schedule_id, principal)
            ScheduleRepository(session).remove(schedule_id)
            self._record(session, principal, AuditAction.SCHEDULE_REMOVED, schedule)

    def _record(self, session: Session, principal: Principal, action: AuditAction, schedule: Schedule) -> None:
        self._audit.record(session, principal.actor, action, schedule.id, name=schedule.name, owner=schedule.owner)


Schedules = Annotated[ScheduleService, depend_on(ScheduleService)]
"""Parameter type of an endpoint that needs the service."""


def check_document(schedule: Schedule) -> None:
    """Try the document of a schedule, as for its next time, with a job before it and without.

    Its files are not looked for: they may come later. Raises ConfigError with fields as in a request.
    """
    zone = parse_zone(schedule.time_zone)
    moment = Moment(find_next(schedule.cron, zone, now()), zone)
    previous = {"previous_job_id": _EXAMPLE_ID, "previous_due_at": moment.due_at - timedelta(days=1)}
    for tried in (moment, replace(moment, **previous)):
        try:
            parse_document(label(fill_document(schedule.document, tried), schedule))
        except ConfigError as error:
            fields = [replace(fault, field=f"document.{fault.field}") for fault in error.errors]
            raise ConfigError(fields) from None


def label(document: Mapping[str, Any], schedule: Schedule) -> dict[str, Any]:
    """Return a job document with the label of its schedule; one that is no document stays as it is."""
    labels = document.get("labels", {})
    return {**document, "labels": {"schedule": schedule.name, **labels} if isinstance(labels, dict) else labels}


def _get_visible(session: Session, schedule_id: str, principal: Principal, *, for_update: bool = False) -> Schedule:
    schedules = ScheduleRepository(session)
    schedule = schedules.lock(schedule_id) if for_update else schedules.get(schedule_id)
    if schedule is None or not principal.may_see(schedule.owner):
        raise not_found("schedule", schedule_id)
    return schedule
