"""Quotas: who sets them, and what they keep from starting."""

from typing import Any

import pytest

from service.access.principal import Role
from tests.service.api import TEAM, Api
from tests.service.databases import on_both_databases, on_sqlite

TWO_CORES = {"workers_per_node": 1, "threads_per_worker": 2, "memory": "1GiB"}


def set_quota(api: Api, owner: str = TEAM, **limits: Any) -> None:
    response = api.admin.put(f"/v1/quotas/{owner}", json=limits)
    assert response.status_code == 200, response.text
    assert response.json()["owner"] == owner


def get_state_and_reason(api: Api, job_id: str) -> tuple[str, str]:
    job = api.viewer.get(f"/v1/jobs/{job_id}").json()
    return job["state"], job["reason"]


def test_owners_see_their_quota_and_that_of_everybody(api: Api) -> None:
    for owner in ("*", TEAM, "others"):
        set_quota(api, owner, num_cores=3)
    assert [item["owner"] for item in api.viewer.get("/v1/quotas").json()["items"]] == ["*", TEAM]
    assert len(api.admin.get("/v1/quotas").json()["items"]) == 3
    assert api.admin.delete("/v1/quotas/others").status_code == 204
    assert api.admin.delete("/v1/quotas/others").status_code == 404


@pytest.mark.parametrize(
    ("owner", "limits"),
    [
        pytest.param(TEAM, {"num_cores": 3}, id="cores"),
        pytest.param("*", {"memory_bytes": 2**30}, marks=pytest.mark.slow, id="memory"),
        pytest.param(TEAM, {"num_running": 1}, id="running"),
    ],
)
def test_a_job_beyond_the_quota_of_its_owner_waits_though_there_is_room(
    api: Api, owner: str, limits: dict[str, int]
) -> None:
    set_quota(api, owner, **limits)
    first, second = (api.submit(resources=TWO_CORES)["id"] for _ in range(2))
    api.services.control.run_once()
    assert get_state_and_reason(api, first)[0] == "STARTING"
    assert get_state_and_reason(api, second) == ("QUEUED", "quota_exceeded")
    assert TEAM in api.viewer.get(f"/v1/jobs/{second}").json()["message"]
    set_quota(api, owner, num_cores=4)
    api.services.control.run_once()
    assert get_state_and_reason(api, second)[0] == "STARTING"


@on_both_databases
def test_a_job_that_its_quota_keeps_back_holds_up_nobody_else(api: Api) -> None:
    set_quota(api, num_running=1)
    api.submit(resources=TWO_CORES)
    kept_back = api.submit(resources=TWO_CORES, priority=5)["id"]
    key = api.services.keys.create("other", Role.SUBMITTER, owner="others").key
    with api.make_client(key) as other:
        api.services.control.run_once()
        document = {"data": {"train": ["day_*.tsv"]}, "labels": {"behaviour": "wait"}, "resources": TWO_CORES}
        other_job = other.post("/v1/jobs", json=document | {"batch": {"global_size": 64}}).json()["id"]
        api.services.control.run_once()
        assert api.admin.get(f"/v1/jobs/{other_job}").json()["state"] == "STARTING"
    running = {job["id"]: job["state"] for job in api.admin.get("/v1/jobs").json()["items"]}
    assert sorted(running.values()) == ["QUEUED", "RUNNING", "STARTING"]
    assert kept_back in running


def test_a_job_larger_than_its_quota_is_refused(api: Api) -> None:
    set_quota(api, num_cores=1, memory_bytes=2**29)
    response = api.submitter.post(
        "/v1/jobs", json={"data": {"train": ["day_*.tsv"]}, "batch": {"global_size": 64}, "resources": TWO_CORES}
    )
    assert (response.status_code, response.json()["type"]) == (422, "urn:dlrm:problem:cannot-fit")
    assert [error["valid"] for error in response.json()["errors"]] == ["at most 1 core", 'at most "0.50GiB"']


@on_both_databases
def test_no_more_jobs_than_the_quota_wait(api: Api) -> None:
    set_quota(api, num_queued=1)
    api.submit()
    document = {"data": {"train": ["day_*.tsv"]}, "batch": {"global_size": 64}, "resources": TWO_CORES}
    response = api.submitter.post("/v1/jobs", json=document)
    assert (response.status_code, response.json()["type"]) == (429, "urn:dlrm:problem:quota-exceeded")
    assert response.headers["Retry-After"] == "30"


@on_sqlite
def test_a_limit_that_is_no_number_or_negative_is_refused(api: Api) -> None:
    assert api.admin.put(f"/v1/quotas/{TEAM}", json={"num_queued": False}).status_code == 422
    assert api.admin.put(f"/v1/quotas/{TEAM}", json={"memory_bytes": "1"}).status_code == 422
    assert api.admin.put(f"/v1/quotas/{TEAM}", json={"num_cores": -1}).status_code == 422
    assert api.admin.put("/v1/quotas/a%20b", json={}).status_code == 422
