"""SQL statements on jobs and their events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session

from service.jobs.models import Event, IdempotencyKey, Job, JobLabel
from service.jobs.reasons import Reason
from service.jobs.states import ENDED, HOLDING, JobState, check_transition
from service.times import now


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
    """Time before which the job is not started again; None where it waits for no restart."""


class JobRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, job: Job, actor: str) -> None:
        """Add a new job and its first event."""
        self._session.add(job)
        self._session.flush()
        self._session.add(
            Event(
                job_id=job.id,
                time=job.created_at,
                actor=actor,
                kind="state",
                to_state=job.state,
                reason=job.reason,
                message=job.message,
                details={},
            )
        )

    def get(self, job_id: str) -> Job | None:
        return self._session.get(Job, job_id)

    def get_world_size(self, job_id: str) -> int:
        """Return the number of ranks of a job, which must exist."""
        return self._session.scalars(select(Job.world_size).where(Job.id == job_id)).one()

    def lock(self, job_id: str) -> Job:
        """Return a job, which must exist, and lock its row until the transaction ends."""
        return self._session.get_one(Job, job_id, with_for_update=True, populate_existing=True)

    def expect(self, job_id: str, state: JobState) -> Job:
        """Lock and return a job that must be in `state`. Raises StateChangedError where it is in another state."""
        job = self.lock(job_id)
        if job.state != state:
            raise StateChangedError(f"{job_id} is {job.state}, no longer {state}")
        return job

    def list_page(
        self,
        *,
        states: Sequence[JobState],
        labels: Sequence[tuple[str, str]],
        name: str | None,
        before: str | None,
        limit: int,
    ) -> list[Job]:
        """List at most `limit` jobs, newest first, that match all filters and have an id below `before`."""
        query = select(Job).order_by(Job.id.desc()).limit(limit)
        if states:
            query = query.where(Job.state.in_(states))
        if name is not None:
            query = query.where(Job.name == name)
        if before is not None:
            query = query.where(Job.id < before)
        for label, value in labels:
            query = query.where(Job.id.in_(_select_jobs_by_label(label, value)))
        return list(self._session.scalars(query))

    def list_in_states(self, states: Sequence[JobState] | frozenset[JobState]) -> list[Job]:
        return list(self._session.scalars(select(Job).where(Job.state.in_(states)).order_by(Job.id)))

    def list_queue(self) -> list[Job]:
        """List the waiting jobs in the order in which they start."""
        query = select(Job).where(Job.state == JobState.QUEUED).order_by(Job.priority.desc(), Job.created_at, Job.id)
        return list(self._session.scalars(query))

    def sum_reserved_capacity(self) -> tuple[int, int, int]:
        """Sum up the cores, bytes of memory and GPUs of all jobs that hold resources."""
        row = self._session.execute(
            select(
                func.coalesce(func.sum(Job.num_cores), 0),
                func.coalesce(func.sum(Job.memory_bytes), 0),
                func.coalesce(func.sum(Job.num_gpus), 0),
            ).where(Job.state.in_(HOLDING))
        ).one()
        return int(row[0]), int(row[1]), int(row[2])

    def count_by_state(self) -> dict[str, int]:
        rows = self._session.execute(select(Job.state, func.count()).group_by(Job.state))
        return {row[0]: row[1] for row in rows}

    def change_state(self, job: Job, change: Change) -> None:
        """Change the state of `job`, a row of this session, and add the event of the change.

        Raises TransitionError where this change of state is not allowed, and StateChangedError where the state has
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
        }
        if change.to_state is JobState.STARTING:
            values["started_at"] = func.coalesce(Job.started_at, time)
        if change.to_state in ENDED:
            values["finished_at"] = time
        changed = self._session.execute(
            update(Job)
            .where(Job.id == job.id, Job.state == from_state)
            .values(values)
            .returning(Job.id)
            .execution_options(synchronize_session=False)
        ).scalar_one_or_none()
        if changed is None:
            raise StateChangedError(f"{job.id} is no longer {from_state}")
        self._session.add(
            Event(
                job_id=job.id,
                attempt=change.attempt,
                time=time,
                actor=change.actor,
                kind="state",
                from_state=from_state,
                to_state=change.to_state.value,
                reason=change.reason.value,
                message=change.message,
                details={},
            )
        )
        self._session.flush()
        self._session.refresh(job)

    def explain_wait(self, job_id: str, reason: Reason, message: str) -> None:
        """Record why a job still waits."""
        self._session.execute(
            update(Job)
            .where(Job.id == job_id, Job.state == JobState.QUEUED)
            .values(reason=reason.value, message=message)
        )

    def set_progress(self, job_id: str, progress: dict[str, Any]) -> None:
        self._session.execute(update(Job).where(Job.id == job_id).values(progress=progress))

    def set_metrics(self, job_id: str, metrics: dict[str, Any]) -> None:
        self._session.execute(update(Job).where(Job.id == job_id).values(metrics=metrics))

    def set_derived(self, job: Job, derived: list[dict[str, Any]]) -> None:
        """Record the numbers that a run derived once it knew its rows."""
        resolved = {**job.resolved, "derived": derived}
        self._session.execute(update(Job).where(Job.id == job.id).values(resolved=resolved))

    def set_num_attempts(self, job_id: str, num_attempts: int) -> None:
        self._session.execute(update(Job).where(Job.id == job_id).values(num_attempts=num_attempts))

    def get_idempotency_key(self, owner: str, key: str) -> IdempotencyKey | None:
        return self._session.get(IdempotencyKey, (owner, key))

    def add_idempotency_key(self, owner: str, key: str, body_hash: str, job_id: str) -> None:
        self._session.add(IdempotencyKey(owner=owner, key=key, body_hash=body_hash, job_id=job_id, created_at=now()))
        self._session.flush()

    def list_events(self, job_id: str, after: int, limit: int) -> list[Event]:
        """List at most `limit` events of a job, oldest first, with ids above `after`."""
        query = select(Event).where(Event.job_id == job_id, Event.id > after).order_by(Event.id).limit(limit)
        return list(self._session.scalars(query))

    def add_event(self, event: Event) -> None:
        self._session.add(event)


def _select_jobs_by_label(name: str, value: str) -> Select[str]:
    return select(JobLabel.job_id).where(JobLabel.name == name, JobLabel.value == value)
