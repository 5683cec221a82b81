"""Reasons why waiting jobs wait, as the API shows them."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from service.jobs.models import Job
from service.jobs.states import JobState
from service.launchers.protocol import Capacity
from service.queue.state import QueueState, get_demand
from service.reasons import Reason
from service.times import now


def explain_waits(session: Session, jobs: Sequence[Job], total: Capacity) -> dict[str, tuple[Reason, str]]:
    """Return what those of `jobs` wait for that are queued, as a reason and a sentence by job id.

    Jobs that are held, and those that are about to start, have their reason in their row. total: all that jobs may
    occupy.
    """
    time = now()
    queued = [job for job in jobs if job.state == JobState.QUEUED and not job.is_held]
    if not queued:
        return {}
    state = QueueState.read(session, total, time)
    waits = {job.id: _explain(job, state) for job in queued}
    return {job_id: wait for job_id, wait in waits.items() if wait is not None}


def _explain(job: Job, state: QueueState) -> tuple[Reason, str] | None:
    if job.restarts_at is not None and job.restarts_at > state.time:
        return Reason.RESTARTING, job.message
    return state.find_wait(job.owner, get_demand(job), job.id)
