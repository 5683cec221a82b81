"""Attempts whose reports a test pushes itself, without any process."""

from service.access.secret import hash_secret
from service.control.starter import Starter
from service.launchers.protocol import LaunchError
from service.store.attempt_repository import AttemptRepository
from service.store.models import Attempt, Job
from tests.service.api import Api

TOKEN = "attempt-token"
"""Token with which the reports of these attempts are pushed."""


def get_job(api: Api, job_id: str) -> Job:
    with api.services.database.read() as session:
        return session.get_one(Job, job_id)


def begin_next_attempt(api: Api, job_id: str) -> Attempt:
    """Begin the next attempt of a job; the attempt before it, if there is one, fails."""
    services = api.services
    services.leadership.acquire()
    job = get_job(api, job_id)
    if job.num_attempts:
        services.control.reconciler._finalizer.record_failed_launch(job_id, LaunchError("a cable was loose"))
        job = get_job(api, job_id)
    attempt = Starter(services.leadership, services.launchers, services.telemetry).begin(job)
    with services.database.write() as session:
        AttemptRepository(session).update(attempt.id, token_hash=hash_secret(TOKEN))
    return attempt
