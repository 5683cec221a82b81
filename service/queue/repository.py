"""SQL statements on waiting jobs. Each reads a few rows, however many jobs wait."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, func, not_, or_, select, tuple_, update
from sqlalchemy.orm import Session

from service.launchers.protocol import Capacity, LauncherCapacity
from service.store.models import IS_WATCHED, Job
from service.store.states import HOLDING, JobState


class QueueRepository:
    def __init__(self, session: Session, launcher: str) -> None:
        """Look at the jobs of one launcher."""
        self._session = session
        self._launcher = launcher

    def find_first(
        self,
        at: datetime,
        *,
        capacity: LauncherCapacity | None,
        room: Capacity | None,
        full: Sequence[ColumnElement[bool]],
        tried: Collection[str],
    ) -> Job | None:
        """Return the first waiting job that may start at the time `at`; None if absent.

        capacity: machines that it has to fit when they are empty; None if they are not known. room: what it may
        occupy; None if that does not matter. full: conditions on jobs that their owner's quota keeps from starting.
        tried: ids of jobs to leave out.
        """
        query = self._select_ready(at).where(*(not_(condition) for condition in full), Job.id.not_in(tried))
        if capacity is not None:
            query = query.where(_fits(capacity))
        if room is not None:
            query = query.where(_is_within(room))
        # In two steps, each of which reads the index in its order and sorts nothing.
        by_priority = query.with_only_columns(Job.priority).order_by(Job.priority.desc()).limit(1)
        highest = select(by_priority.subquery().c.priority).scalar_subquery()
        return self._session.scalar(query.where(Job.priority == highest).order_by(Job.created_at, Job.id).limit(1))

    def list_too_large(self, capacity: LauncherCapacity) -> list[Job]:
        """List waiting jobs that need more of one machine, or of all together, than there is."""
        query = select(Job).where(
            Job.state == JobState.QUEUED,
            Job.launcher == self._launcher,
            not_(_fits(capacity)),
        )
        return list(self._session.scalars(query.order_by(Job.id)))

    def list_ahead(self, job: Job, at: datetime, limit: int) -> list[Job]:
        """List at most `limit` of the jobs that `count_ahead` counts, in their order."""
        query = self._select_ready(at).where(_is_ahead(job))
        return list(self._session.scalars(query.order_by(Job.priority.desc(), Job.created_at, Job.id).limit(limit)))

    def list_first(self, at: datetime, limit: int) -> list[tuple[str, str]]:
        """List id and owner of the first waiting jobs, in the order of the queue."""
        found: list[tuple[str, str]] = []
        ready = self._select_ready(at)
        highest = select(func.max(Job.priority)).where(Job.state == JobState.QUEUED, Job.launcher == self._launcher)
        priority = self._session.scalar(highest)
        # Priority by priority, each of which the index has in its order.
        while priority is not None and len(found) < limit:
            same = ready.where(Job.priority == priority).with_only_columns(Job.id, Job.owner)
            rows = self._session.execute(same.order_by(Job.created_at, Job.id).limit(limit - len(found)))
            found += [(row[0], row[1]) for row in rows]
            priority = self._session.scalar(highest.where(Job.priority < priority))
        return found

    def list_by_ids(self, job_ids: Collection[str]) -> dict[str, Job]:
        """List jobs by their ids."""
        return {job.id: job for job in self._session.scalars(select(Job).where(Job.id.in_(job_ids)))}

    def count_ready(self, at: datetime) -> dict[str, int]:
        """Count the waiting jobs by owner."""
        query = self._select_ready(at).with_only_columns(Job.owner, func.count()).group_by(Job.owner)
        return {row[0]: row[1] for row in self._session.execute(query)}

    def list_holding(self) -> list[Job]:
        """List the jobs that hold resources."""
        query = select(Job).where(IS_WATCHED, Job.state.in_(HOLDING), Job.launcher == self._launcher)
        return list(self._session.scalars(query))

    def list_run_seconds(self, owner: str, name: str, limit: int) -> list[float]:
        """List how long the last `limit` jobs of this name ran that have succeeded."""
        query = select(Job.started_at, Job.finished_at).where(
            Job.owner == owner,
            Job.name == name,
            Job.state == JobState.SUCCEEDED,
            Job.started_at.is_not(None),
            Job.finished_at.is_not(None),
        )
        rows = self._session.execute(query.order_by(Job.id.desc()).limit(limit))
        return [(end - start).total_seconds() for start, end in rows if start is not None and end is not None]

    def set_at_head(self, job_id: str, since: datetime) -> None:
        """Record since when a job is the first one and cannot start; a time that is recorded already stays."""
        self._session.execute(
            update(Job)
            .where(Job.id == job_id, Job.state == JobState.QUEUED, Job.at_head_since.is_(None))
            .values(at_head_since=since)
        )

    def count_ahead(self, job: Job, at: datetime) -> int:
        """Count the jobs that are in front of `job`, and neither held nor waiting for a restart."""
        return self._session.scalar(self._select_ready(at).where(_is_ahead(job)).with_only_columns(func.count())) or 0

    def _select_ready(self, at: datetime) -> Select[Job]:
        """Select the jobs that wait for nothing but resources."""
        return select(Job).where(
            Job.state == JobState.QUEUED,
            Job.launcher == self._launcher,
            Job.is_held.is_(False),
            or_(Job.restarts_at.is_(None), Job.restarts_at <= at),
        )


def _fits(capacity: LauncherCapacity) -> ColumnElement[bool]:
    """Return the condition that a machine has room for a job, and all together for its machines, while all are free."""
    fits_a_machine = [
        and_(Job.num_cores <= kind.num_cores, Job.memory_bytes <= kind.memory_bytes, Job.num_gpus <= kind.num_gpus)
        for kind in capacity.kinds
    ]
    return and_(or_(*fits_a_machine), _is_within(capacity.total))


def _is_within(room: Capacity) -> ColumnElement[bool]:
    """Return the condition that there is room for a job on the smallest number of its machines together."""
    return and_(
        Job.num_cores * Job.min_nodes <= room.num_cores,
        Job.memory_bytes * Job.min_nodes <= room.memory_bytes,
        Job.num_gpus * Job.min_nodes <= room.num_gpus,
    )


def _is_ahead(job: Job) -> ColumnElement[bool]:
    is_older = tuple_(Job.created_at, Job.id) < tuple_(job.created_at, job.id)
    return or_(Job.priority > job.priority, and_(Job.priority == job.priority, is_older))


def list_late(session: Session, at: datetime, limit: int) -> list[Job]:
    """List waiting jobs, of whichever launcher, whose deadline has passed."""
    query = select(Job).where(Job.state == JobState.QUEUED, Job.deadline_at < at)
    return list(session.scalars(query.order_by(Job.deadline_at).limit(limit)))
