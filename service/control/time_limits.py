"""Time limits of a job: the back-off before a restart, and the deadline."""

from service.jobs.models import Job
from service.times import now


def has_to_wait(job: Job) -> bool:
    """Whether the back-off of `job` is not over yet."""
    return job.restarts_at is not None and now() < job.restarts_at


def is_late(job: Job) -> bool:
    """Whether the deadline of `job` has passed."""
    return job.deadline_at is not None and now() > job.deadline_at
