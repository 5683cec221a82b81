"""Rounds of the control loop that tests run themselves."""

from typing import Any

from service.access.principal import Principal, Role
from service.app import Services
from service.jobs.schemas import JobDetail
from service.jobs.service import Submission
from tests.patience import wait_until
from tests.service.api import make_document

USER = Principal("key_0", "somebody", "somebody", Role.ADMIN)
"""User who submits and controls jobs without a request."""


def submit(services: Services, behaviour: str = "wait", **changes: Any) -> str:
    """Submit a job, and return its id."""
    return services.jobs.submit(Submission(make_document(behaviour, **changes), USER))[0].id


def run_until(services: Services, job_id: str, *states: str) -> JobDetail:
    """Run rounds until the job is in one of `states`, and return it."""

    def find_job() -> JobDetail | None:
        services.control.run_once()
        job = services.jobs.get(job_id, USER)
        return job if job.state in states else None

    return wait_until(find_job)
