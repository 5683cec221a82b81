"""Before when a job does not start again, and after when it is given up."""

from service.jobs.models import Job
from service.times import now


def has_to_wait(job: Job) -> bool:
    """Whether its back-off is not over yet."""
    return job.restarts_at is not None and now() < job.restarts_at


def is_late(job: Job) -> bool:
    """Whether its `deadline_seconds`, counted from its first start, are over."""
    deadline_seconds = job.spec["deadline_seconds"]
    if deadline_seconds is None or job.started_at is None:
        return False
    return (now() - job.started_at).total_seconds() > deadline_seconds
