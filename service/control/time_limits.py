"""Time limits of a job: the back-off before a restart, and the deadline."""

from service.jobs.models import Job
from service.times import now


def has_to_wait(job: Job) -> bool:
    """Whether the back-off of `job` is not over yet."""
    return job.restarts_at is not None and now() < job.restarts_at


def is_late(job: Job) -> bool:
    """Whether more than `deadline_seconds` have passed since the submission or the first start of `job`."""
    deadline_seconds = job.spec["deadline_seconds"]
    # Jobs of earlier versions do not say from when.
    since = job.created_at if job.spec.get("deadline_from") == "submission" else job.started_at
    if deadline_seconds is None or since is None:
        return False
    return (now() - since).total_seconds() > deadline_seconds
