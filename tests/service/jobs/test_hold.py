"""Queued jobs that are held do not start until they are released."""

from typing import Any

import httpx
import pytest
from sqlalchemy import text

from service.control.starter import Starter
from service.store.job_repository import StateChangedError
from service.store.models import Job
from tests.service.api import Api
from tests.service.jobs.test_jobs_api import check_problem


def hold(api: Api, job_id: str) -> httpx.Response:
    return api.submitter.post(f"/v1/jobs/{job_id}/hold")


def release(api: Api, job_id: str) -> httpx.Response:
    return api.submitter.post(f"/v1/jobs/{job_id}/release")


def get_job(api: Api, job_id: str) -> dict[str, Any]:
    return api.viewer.get(f"/v1/jobs/{job_id}").json()


def list_events(api: Api, job_id: str) -> list[dict[str, Any]]:
    return api.viewer.get(f"/v1/jobs/{job_id}/events").json()["items"]


def set_state(api: Api, state: str) -> None:
    with api.services.database.write() as session:
        session.execute(text(f"UPDATE jobs SET state = '{state}'"))


def test_a_held_job_does_not_start_and_others_do_until_it_is_released(api: Api) -> None:
    job_id, other_id = api.submit()["id"], api.submit()["id"]
    held = hold(api, job_id)
    assert held.status_code == 202
    job = held.json()
    assert (job["state"], job["is_held"], job["reason"]) == ("QUEUED", True, "held")
    assert job["message"] == "held by team (key submitter)"
    for _ in range(2):
        api.services.control.run_once()
    assert get_job(api, other_id)["state"] in {"STARTING", "RUNNING"}
    assert get_job(api, job_id)["message"] == job["message"]
    released = release(api, job_id).json()
    assert (released["state"], released["is_held"], released["reason"]) == ("QUEUED", False, "released")
    assert released["message"] == "released by team (key submitter)"
    api.services.control.run_once()
    assert get_job(api, job_id)["state"] in {"STARTING", "RUNNING"}
    events = [(event["kind"], event["name"], event["actor"], event["message"]) for event in list_events(api, job_id)]
    assert events[1:3] == [
        ("action", "held", "team", job["message"]),
        ("action", "released", "team", released["message"]),
    ]


def test_holding_and_releasing_twice_is_as_once(api: Api) -> None:
    job_id = api.submit()["id"]
    assert release(api, job_id).json()["reason"] == "submitted"
    first, second = hold(api, job_id), hold(api, job_id)
    assert first.json() == second.json()
    first, second = release(api, job_id), release(api, job_id)
    assert first.status_code == second.status_code == 202
    assert first.json() == second.json()
    assert [event["name"] for event in list_events(api, job_id)] == [None, "held", "released"]


def test_only_a_queued_job_is_held_or_released(api: Api) -> None:
    job_id = api.submit()["id"]
    for state in ("STARTING", "RUNNING", "PAUSED", "RECOVERING", "CANCELLING", "SUCCEEDED"):
        set_state(api, state)
        for verb, participle in (("hold", "held"), ("release", "released")):
            problem = check_problem(api.submitter.post(f"/v1/jobs/{job_id}/{verb}"), 409, "conflict")
            assert problem["detail"] == f"{job_id} is {state}: only a QUEUED job can be {participle}"
            assert problem["state"] == state


def test_a_job_that_is_held_while_the_scheduler_considers_it_does_not_start(api: Api) -> None:
    job_id = api.submit()["id"]
    services = api.services
    with services.database.read() as session:
        considered = session.get_one(Job, job_id)
    hold(api, job_id)
    services.leadership.acquire()
    with pytest.raises(StateChangedError):
        Starter(services.leadership, services.launchers, services.telemetry).begin(considered)
    job = get_job(api, job_id)
    assert (job["state"], job["reason"]) == ("QUEUED", "held")


def test_a_held_job_can_be_cancelled_and_is_held_no_longer(api: Api) -> None:
    job_id = api.submit()["id"]
    hold(api, job_id)
    job = api.submitter.post(f"/v1/jobs/{job_id}/cancel").json()
    assert (job["state"], job["is_held"]) == ("CANCELLED", False)
