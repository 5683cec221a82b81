"""The queue of a launcher as people may see it."""

from datetime import datetime
from typing import Annotated

from sqlalchemy.orm import Session

from service import schemas
from service.access.principal import Principal
from service.capacity.known import KnownCapacity
from service.database import Database
from service.parts import depend_on
from service.queue.place import MAX_AHEAD, Forecaster, Wait, explain_waits
from service.queue.repository import QueueRepository
from service.store.demand import get_full_demand
from service.store.models import Job
from service.times import now

MAX_LOOKED_AT = 500
"""Number of jobs at the beginning of the queue among which the visible ones are looked for."""


class QueueService:
    def __init__(self, database: Database, capacity: KnownCapacity) -> None:
        self._database = database
        self._capacity = capacity

    def describe(self, launcher: str, principal: Principal, limit: int) -> schemas.Queue:
        """Describe the first `limit` jobs of the queue of a launcher that `principal` may know of."""
        time = now()
        with self._database.read() as session:
            queue = QueueRepository(session, launcher)
            counts = queue.count_ready(time)
            first = queue.list_first(time, MAX_LOOKED_AT)
            visible = [position for position, (_, owner) in enumerate(first, 1) if principal.may_see(owner)][:limit]
            jobs = self._describe_jobs(session, launcher, [job_id for job_id, _ in first], visible, time)
        return schemas.Queue(
            launcher=launcher,
            num_jobs=sum(counts.values()),
            num_of_others=sum(number for owner, number in counts.items() if not principal.may_see(owner)),
            jobs=jobs,
        )

    def _describe_jobs(
        self, session: Session, launcher: str, first: list[str], positions: list[int], time: datetime
    ) -> list[schemas.QueuedJob]:
        """Describe the jobs at some positions. first: ids of the first jobs, in their order."""
        rows = QueueRepository(session, launcher).list_by_ids(
            {*first[:MAX_AHEAD], *(first[at - 1] for at in positions)}
        )
        capacities = self._capacity.read()
        waits = explain_waits(session, [rows[first[at - 1]] for at in positions], lambda: capacities)
        forecaster = Forecaster(session, launcher, capacities.get(launcher), time)
        described: list[schemas.QueuedJob] = []
        for position in positions:
            job, num_ahead = rows[first[position - 1]], position - 1
            expected = None
            if num_ahead <= MAX_AHEAD:
                expected = forecaster.expect_start(job, [rows[job_id] for job_id in first[:num_ahead]])
            described.append(_describe(job, position, waits.get(job.id), expected))
        return described


Queue = Annotated[QueueService, depend_on(QueueService)]
"""Parameter type of an endpoint that needs the service."""


def _describe(job: Job, position: int, wait: Wait | None, expected_start_at: datetime | None) -> schemas.QueuedJob:
    names = ("id", "name", "owner", "priority", "created_at", "num_nodes")
    reason, waits_for = (job.reason, job.message) if wait is None else wait
    return schemas.QueuedJob.model_validate(
        {
            **{name: getattr(job, name) for name in names},
            **vars(get_full_demand(job).total),
            "position": position,
            "reason": reason,
            "waits_for": waits_for,
            "expected_start_at": expected_start_at,
        }
    )
