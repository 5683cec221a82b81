"""Reports of an attempt that has ended: none is stored any more, whoever delivers it."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from dlrm.record import SpoolWriter
from service.control.starter import make_launch
from service.reasons import Reason
from service.reports.spool_tail import SpoolTail
from service.store.attempt_repository import AttemptRepository
from service.store.models import Attempt, Job
from service.store.states import ENDED, AttemptState
from service.times import now
from tests.made_reports import make_evaluation, make_step, make_step_line
from tests.service.api import Api
from tests.service.databases import on_both_databases
from tests.service.reports.attempts import TOKEN, begin_next_attempt, get_job, push_lines

pytestmark = on_both_databases


@pytest.fixture
def attempt(api: Api) -> Attempt:
    attempt = begin_next_attempt(api, api.submit()["id"])
    assert push(api, attempt, 1, make_step_line(1)).status_code == 200
    return attempt


def push(api: Api, attempt: Attempt, seq: int, line: str, token: str = TOKEN) -> httpx.Response:
    return push_lines(api, attempt, [line], first_seq=seq, token=token)


def make_late_line(seq: int) -> str:
    return make_evaluation(499, seq=seq, time=1e9).model_dump_json()


def get_reported(api: Api, attempt: Attempt) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the metrics and the progress of a job."""
    job = api.admin.get(f"/v1/jobs/{attempt.job_id}").json()
    return api.admin.get(f"/v1/jobs/{attempt.job_id}/metrics").json()["items"], job["progress"]


def finish_attempt(api: Api, attempt: Attempt, state: AttemptState) -> None:
    with api.services.database.write() as session:
        AttemptRepository(session).finish(attempt.id, state, Reason.COMPLETED, "", 0, now())


def end_job(api: Api, attempt: Attempt, state: str) -> None:
    with api.services.database.write() as session:
        session.execute(update(Job).where(Job.id == attempt.job_id).values(state=state))


@pytest.mark.parametrize("state", sorted(set(AttemptState) - {AttemptState.STARTING, AttemptState.RUNNING}))
def test_what_is_pushed_after_the_end_of_an_attempt_is_gone(api: Api, attempt: Attempt, state: AttemptState) -> None:
    finish_attempt(api, attempt, state)
    before = get_reported(api, attempt)
    check_is_closed(api, attempt)
    assert get_reported(api, attempt) == before


@pytest.mark.parametrize("state", sorted(ENDED))
def test_what_is_pushed_after_the_end_of_a_job_is_gone(api: Api, attempt: Attempt, state: str) -> None:
    end_job(api, attempt, state)
    before = get_reported(api, attempt)
    check_is_closed(api, attempt)
    assert get_reported(api, attempt) == before


def test_what_is_pushed_after_the_next_attempt_has_begun_is_gone(api: Api, attempt: Attempt) -> None:
    second = begin_next_attempt(api, attempt.job_id)
    check_is_closed(api, attempt)
    assert push(api, second, 1, make_step_line(1)).status_code == 200


def check_is_closed(api: Api, attempt: Attempt) -> None:
    query = {"rank": "0", "stream": "metrics"}
    asked = api.anonymous.get(f"/v1/ingest/{attempt.id}", params=query, headers={"Authorization": f"Bearer {TOKEN}"})
    for response in (push(api, attempt, 2, make_late_line(2)), push(api, attempt, 1, make_late_line(1)), asked):
        assert response.status_code == 410
        assert response.json()["type"] == "urn:dlrm:problem:attempt-ended"
        assert attempt.job_id in response.json()["detail"]
    assert push(api, attempt, 2, make_late_line(2), token="another").status_code == 401


@pytest.mark.parametrize("end", [finish_attempt, end_job])
def test_what_a_spool_has_after_the_end_stays_in_the_spool(
    api: Api, attempt: Attempt, end: Callable[[Api, Attempt, Any], None]
) -> None:
    job = get_job(api, attempt.job_id)
    launch = make_launch(job, attempt)
    writer = SpoolWriter(launch.run_directory.attempt(1).spool_file(0, "metrics"))
    for number in (1, 2):
        writer.write(make_step(number))
    tail = SpoolTail(api.services.database, api.services.telemetry)
    tail.ingest_new_lines(job, attempt, launch)
    writer.write(make_evaluation(499))
    end(api, attempt, AttemptState.SUCCEEDED)
    before = get_reported(api, attempt)
    assert len(before[0]) == 2
    tail.ingest_new_lines(job, attempt, launch)
    tail.ingest_new_lines(job, attempt, launch)
    assert get_reported(api, attempt) == before
