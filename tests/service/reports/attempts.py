"""Attempts whose reports a test pushes itself, without any process."""

from collections.abc import Sequence
from typing import Any

import httpx

from dlrm.record import Report
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


def push_lines(
    api: Api, attempt: Attempt, lines: Sequence[str], *, first_seq: int = 1, token: str = TOKEN, **changes: Any
) -> httpx.Response:
    """Push lines of the metrics of rank 0. changes: other fields of the request, such as another stream."""
    body = {"rank": 0, "stream": "metrics", "first_seq": first_seq, "lines": lines} | changes
    return api.anonymous.post(f"/v1/ingest/{attempt.id}", json=body, headers={"Authorization": f"Bearer {token}"})


def push_reports(api: Api, attempt: Attempt, *reports: Report) -> httpx.Response:
    """Push reports as the first lines of a stream; those of a later attempt are later."""
    lines = [
        report.model_copy(update={"seq": seq, "time": 1e9 * attempt.number + seq}).model_dump_json()
        for seq, report in enumerate(reports, start=1)
    ]
    return push_lines(api, attempt, lines)
