"""SQL statements on jobs and their events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Text, TextClause, and_, cast, delete, func, or_, select, update
from sqlalchemy.orm import Session

from service.database.database import note_change
from service.launchers.protocol import Capacity
from service.reasons import RECONCILER, Reason
from service.store.batch import find_batch
from service.store.events import add_event
from service.store.job_texts import make_text
from service.store.models import (
    IS_SHORTLY_NAMED,
    IS_WATCHED,
    Event,
    Job,
    JobDocument,
    JobLabel,
    JobText,
)
from service.store.states import ENDED, HOLDING, NOT_ENDED, JobState, check_transition
from service.times import now

MAX_EVENTS_CHARACTERS = 2**19
"""Characters of the messages and details of one page of events, as far as its last event begins before them."""

STATE_CHANGES = "state"
"""Kind of the events that say that a job has changed its state; no report has it as its name."""
FINAL_FIGURES = ("auc", "samples_per_second")
"""Metrics of an outcome that lists show, as part of the progress."""
HELD = tuple(func.sum(amount * Job.num_nodes) for amount in (Job.num_cores, Job.memory_bytes, Job.num_gpus))
"""Sums of the cores, memory and GPUs of jobs on all their machines; null if there are none."""


class StateChangedError(Exception):
    """Change of the job's state by another request or thread since it was read."""


@dataclass(frozen=True)
class Change:
    """A change of state, with its reason and the user or part of the service that made it."""

    to_state: JobState
    reason: Reason
    actor: str
    message: str = ""
    attempt: int | None = None
    restarts_at: datetime | None = None
    """Time before which the job is not started again; None if it waits for no restart."""


class JobRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job: Job, document: JobDocument, labels: Mapping[str, str], actor: str, message: str) -> None:
        """Add a new job with its document and labels, and its first event, which has `message`."""
        self._session.add(job)
        self._session.flush()
        self._session.add(document)
        self.set_labels(job, labels)
        event = {"time": job.created_at, "to_state": job.state, "reason": job.reason}
        self._add_event(job.id, "state", actor, message, **event)

    def get(self, job_id: str, *, for_update: bool = False) -> Job | None:
        """Return a job; None if absent. for_update: lock its row until the transaction ends."""
        return self._session.get(Job, job_id, with_for_update=for_update or None)

    def set_labels(self, job: Job, labels: Mapping[str, str]) -> None:
        """Replace the labels of a job, and the text in which it is looked for."""
        for table in (JobLabel, JobText):
            self._session.execute(delete(table).where(table.job_id == job.id))
        self._session.add_all(JobLabel(job_id=job.id, name=name, value=value) for name, value in labels.items())
        self._session.add(JobText(job_id=job.id, text=make_text(job.id, job.name, job.owner, labels)))
        self._session.flush()

    def get_document(self, job_id: str) -> JobDocument:
        """Return the document of a job, which must exist."""
        return self._session.get_one(JobDocument, job_id)

    def get_labels(self, job_id: str) -> dict[str, str]:
        """Return the labels of a job, in the order of their names."""
        query = select(JobLabel.name, JobLabel.value).where(JobLabel.job_id == job_id).order_by(JobLabel.name)
        return {row[0]: row[1] for row in self._session.execute(query)}

    def lock(self, job_id: str) -> Job:
        """Return a job, which must exist, and lock its row until the transaction ends."""
        return self._session.get_one(Job, job_id, with_for_update=True, populate_existing=True)

    def hold(self, job_id: str) -> Job | None:
        """Return a job, and keep others from changing its row until the transaction ends; None if absent."""
        return self._session.get(Job, job_id, with_for_update={"read": True})

    def expect(self, job_id: str, state: JobState) -> Job:
        """Lock and return a job that must be in `state`. Raises StateChangedError if it is in another state."""
        job = self.lock(job_id)
        if job.state != state:
            raise StateChangedError(f"{job_id} is {job.state}, no longer {state}")
        return job

    def list_watched(self) -> list[Job]:
        """List the jobs that the reconciler looks after, oldest first."""
        return list(self._session.scalars(select(Job).where(IS_WATCHED).order_by(Job.id)))

    def sum_reserved_capacity(self, launcher: str) -> Capacity:
        """Sum up the resources, on all their machines, of the jobs of a launcher that hold some."""
        query = select(*HELD).where(IS_WATCHED, Job.state.in_(HOLDING), Job.launcher == launcher)
        return Capacity(*(int(amount or 0) for amount in self._session.execute(query).one()))

    def count_by_state(self) -> dict[str, int]:
        rows = self._session.execute(select(Job.state, func.count()).group_by(Job.state))
        return {row[0]: row[1] for row in rows}

    def change_state(self, job: Job, change: Change) -> None:
        """Change the state of `job`, a row of this session, and add the event of the change.

        Raises TransitionError if this change of state is not allowed, and StateChangedError if the state has
        changed since `job` was read.
        """
        from_state = JobState(job.state)
        check_transition(from_state, change.to_state)
        time = now()
        values: dict[str, Any] = {
            "state": change.to_state.value,
            "reason": change.reason.value,
            "message": change.message,
            "restarts_at": change.restarts_at,
            "at_head_since": None,
            "is_held": False,
        }
        if change.to_state is JobState.STARTING:
            values["started_at"] = job.started_at or time
            values["deadline_at"] = job.deadline_at or find_deadline(job, values["started_at"])
        if change.to_state in ENDED:
            values["finished_at"] = time
        guard = [Job.id == job.id, Job.state == from_state]
        if change.to_state is JobState.STARTING:
            # It may have been held since the scheduler read it.
            guard.append(Job.is_held.is_(False))
        if not self._update_guarded(guard, values):
            raise StateChangedError(f"{job.id} is no longer {from_state}, or is held")
        event = {"from_state": from_state, "to_state": change.to_state.value, "reason": change.reason.value}
        self._add_event(job.id, "state", change.actor, change.message, time=time, attempt=change.attempt, **event)
        self._session.flush()
        self._session.refresh(job)

    def set_held(self, job: Job, reason: Reason, actor: str, message: str) -> None:
        """Hold a queued job, or release it, and add the event of that. reason: HELD or RELEASED.

        Raises StateChangedError if the job is no longer queued.
        """
        values = {
            "is_held": reason is Reason.HELD,
            "at_head_since": None,
            "reason": reason.value,
            "message": message,
        }
        if not self._update_guarded([Job.id == job.id, Job.state == JobState.QUEUED], values):
            raise StateChangedError(f"{job.id} is no longer {JobState.QUEUED}")
        self._add_event(job.id, "action", actor, message, name=reason.value, reason=reason.value)
        self._session.flush()
        self._session.refresh(job)

    def edit(self, job: Job, labels: Mapping[str, str], priority: int, actor: str, message: str) -> None:
        """Set the labels and the priority of `job`, a locked row of this session, and add the event of that."""
        self.set_labels(job, labels)
        if job.priority != priority:
            # Whoever is the first one now has waited for no room yet.
            job.priority, job.at_head_since = priority, None
        # A restart repeats the document.
        document = self.get_document(job.id)
        document.spec = {**document.spec, "labels": dict(labels), "priority": priority}
        self._add_event(job.id, "action", actor, message, name=Reason.EDITED.value, reason=Reason.EDITED.value)
        self._session.flush()
        self._session.refresh(job)

    def _add_event(self, job_id: str, kind: str, actor: str, message: str, **values: Any) -> None:
        """Add an event of the service itself. values: further columns; its time is now unless they have another."""
        values.setdefault("time", now())
        add_event(self._session, Event(job_id=job_id, kind=kind, actor=actor, message=message, details={}, **values))

    def _update_guarded(self, guard: Sequence[ColumnElement[bool]], values: dict[str, Any]) -> bool:
        """Update the job for which all of `guard` holds; return whether there is one."""
        changed = self._session.execute(
            update(Job).where(*guard).values(values).returning(Job.id).execution_options(synchronize_session=False)
        )
        return changed.scalar_one_or_none() is not None

    def update(self, job_id: str, **values: Any) -> None:
        """Set columns of a job, whatever they were; `change_state` alone sets its state."""
        note_change(self._session, job_id)
        self._session.execute(update(Job).where(Job.id == job_id).values(values))

    def set_decided(self, job_id: str, derived: list[dict[str, Any]], batch: dict[str, Any]) -> None:
        """Record what a run decided once it knew its rows: the numbers that it derived, and its batch."""
        document = self.get_document(job_id)
        resolved = document.resolved
        document.resolved = {**resolved, "job": {**resolved["job"], "batch": batch}, "derived": derived}
        self.update(job_id, batch=find_batch(document.spec, document.resolved))

    def set_metrics(self, job: Job, metrics: Mapping[str, float | None], *, has_warnings: bool) -> None:
        """Record the metrics of an outcome; its AUC and speed, if any, replace the figures of the progress.

        has_warnings: whether the metrics say something against the model.
        """
        self.get_document(job.id).metrics = dict(metrics)
        final = {name: value for name in FINAL_FIGURES if (value := metrics.get(name)) is not None}
        self.update(job.id, progress={**job.progress, **final}, has_warnings=has_warnings)

    def list_events(
        self, job_id: str, after: int, limit: int, *, names: Sequence[str] = (), is_newest_first: bool = False
    ) -> tuple[list[Event], bool]:
        """List events of a job in the order of their ids, after the id `after` in this order (0: from the beginning);
        and return whether there are more of them. names: chosen names, STATE_CHANGES for changes of state; empty: all.

        There are at most `limit`, and at least one but no more than begin within MAX_EVENTS_CHARACTERS: a trainer may
        write any details, and whoever reads many of them at once should not take the memory of the service.
        """
        order = Event.id.desc() if is_newest_first else Event.id
        chosen: list[ColumnElement[bool] | TextClause] = [Event.job_id == job_id]
        if after:
            chosen.append(Event.id < after if is_newest_first else Event.id > after)
        if names:
            by_name = and_(Event.name.in_(names), IS_SHORTLY_NAMED)
            chosen.append(or_(by_name, Event.kind == STATE_CHANGES) if STATE_CHANGES in names else by_name)
        length = func.length(Event.message) + func.length(cast(Event.details, Text))
        rows = select(Event.id, length.label("length")).where(*chosen).order_by(order).limit(limit + 1).subquery()
        row_order = rows.c.id.desc() if is_newest_first else rows.c.id
        end = func.sum(rows.c.length).over(order_by=row_order)
        ids = self._session.execute(select(rows.c.id, end - rows.c.length).order_by(row_order)).all()
        fitting = [event_id for event_id, start in ids[:limit] if start < MAX_EVENTS_CHARACTERS]
        events = self._session.scalars(select(Event).where(Event.id.in_(fitting)).order_by(order)) if fitting else ()
        return list(events), len(ids) > len(fitting)

    def find_newest_event(self) -> int:
        """Return the id of the newest event of all jobs; 0 if there is none."""
        return self._session.scalar(select(func.max(Event.id))) or 0

    def list_new_events(self, after: int, limit: int) -> list[tuple[int, str]]:
        """List ids and jobs of at most `limit` events of all jobs, oldest first, with ids above `after`."""
        query = select(Event.id, Event.job_id).where(Event.id > after).order_by(Event.id).limit(limit)
        return [(row.id, row.job_id) for row in self._session.execute(query)]

    def list_events_by_ids(self, event_ids: Sequence[int]) -> list[Event]:
        """List the events with these ids, oldest first."""
        return list(self._session.scalars(select(Event).where(Event.id.in_(event_ids)).order_by(Event.id)))

    def list_by_ids(self, job_ids: Sequence[str]) -> list[Job]:
        """List the jobs with these ids that are not being deleted."""
        return list(self._session.scalars(select(Job).where(Job.id.in_(job_ids), Job.deleting_at.is_(None))))

    def set_reason(self, job: Job, reason: Reason, message: str) -> None:
        """Set the reason of a job's state, unless that has changed since `job` was read."""
        note_change(self._session, job.id)
        unchanged = (Job.id == job.id, Job.state == job.state)
        self._session.execute(update(Job).where(*unchanged).values(reason=reason.value, message=message))

    def add_repair(self, job_id: str, attempt: int, message: str, reason: Reason | None = None) -> None:
        """Add an event about something that the control loop found otherwise than expected, and put right.

        reason: the one that the job has from then on; None if it keeps its own.
        """
        word = None if reason is None else reason.value
        self._add_event(job_id, "repair", RECONCILER, message, attempt=attempt, reason=word)

    def find_heir(self, job_id: str) -> Job | None:
        """Return a job that has not ended and starts from the model of the job `job_id`; None if absent."""
        query = select(Job).where(Job.state.in_(NOT_ENDED), Job.warm_start_job_id == job_id).order_by(Job.id).limit(1)
        return self._session.scalar(query)


def find_deadline(job: Job, start: datetime) -> datetime | None:
    """Return the time of a job's deadline, with its seconds counted from `start`; None if it has no deadline."""
    return None if job.deadline_seconds is None else start + timedelta(seconds=job.deadline_seconds)
