"""Who may know of which job: the owner and admins; for anybody else there is none."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from dlrm.config.patterns import PACKED_META
from service.access.principal import Role
from service.ids import new_id
from tests.service.api import TEAM, Api, make_document
from tests.service.jobs.keys import make_key

VERBS = [
    ("GET", ""),
    ("GET", "/events"),
    ("GET", "/attempts"),
    ("GET", "/checkpoints"),
    ("GET", "/metrics"),
    ("GET", "/curves"),
    ("GET", "/logs"),
    ("GET", "/logs?rank=launch&attempt=7"),
    ("GET", "/logs/matches?q=error"),
    ("GET", "/artifacts"),
    ("GET", "/artifacts?below=model"),
    ("GET", "/artifacts/spec.json"),
    ("POST", "/cancel"),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/restart"),
    ("POST", "/hold"),
    ("POST", "/release"),
    ("DELETE", ""),
]


def get_problem(response: httpx.Response, job_id: str) -> dict[str, Any]:
    """Return the problem document of a response, without the id of the job."""
    problem = {name: response.json()[name] for name in ("type", "title", "status", "detail", "errors")}
    return problem | {"detail": problem["detail"].replace(job_id, "ID"), "media": response.headers["content-type"]}


def get_without_forecast(api: Api, job_id: str) -> dict[str, Any]:
    """Return a job without the minute at which it is expected to start, which the next one changes."""
    job = api.viewer.get(f"/v1/jobs/{job_id}").json()
    return job | {"queue": job["queue"] and job["queue"] | {"expected_start_at": None}}


@pytest.mark.parametrize(("method", "path"), VERBS)
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_job_of_another_owner_is_answered_exactly_as_one_that_does_not_exist(
    shared_api: Api, method: str, path: str, *, has_ended: bool
) -> None:
    job_id, unknown_id = shared_api.submit()["id"], new_id("job")
    if has_ended:
        shared_api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    before = get_without_forecast(shared_api, job_id)
    with make_key(shared_api, "stranger", Role.SUBMITTER) as stranger:
        foreign = stranger.request(method, f"/v1/jobs/{job_id}{path}")
        unknown = stranger.request(method, f"/v1/jobs/{unknown_id}{path}")
    assert foreign.status_code == 404
    assert get_problem(foreign, job_id) == get_problem(unknown, unknown_id)
    assert set(foreign.headers) == set(unknown.headers)
    assert get_without_forecast(shared_api, job_id) == before


@pytest.mark.parametrize(("method", "path"), [verb for verb in VERBS if verb[0] != "GET"])
def test_a_viewer_changes_no_job_and_learns_of_none(shared_api: Api, method: str, path: str) -> None:
    job_id = shared_api.submit()["id"]
    answers = [shared_api.viewer.request(method, f"/v1/jobs/{name}{path}") for name in (job_id, new_id("job"))]
    with make_key(shared_api, "stranger", Role.VIEWER) as stranger:
        answers.append(stranger.request(method, f"/v1/jobs/{job_id}{path}"))
    assert [answer.status_code for answer in answers] == [403, 403, 403]


def test_all_keys_of_an_owner_see_its_jobs_and_admins_see_all(shared_api: Api) -> None:
    with make_key(shared_api, "ads", Role.SUBMITTER, name="laptop") as laptop:
        job = laptop.post("/v1/jobs", json=make_document()).json()
    assert (job["owner"], job["created_by"]) == ("ads", "laptop")
    with make_key(shared_api, "ads", Role.VIEWER) as viewer:
        assert viewer.get(f"/v1/jobs/{job['id']}").json()["owner"] == "ads"
    assert shared_api.admin.get(f"/v1/jobs/{job['id']}").status_code == 200
    assert shared_api.admin.post(f"/v1/jobs/{job['id']}/cancel").status_code == 202


def test_a_list_has_ones_own_jobs_and_an_admins_all_or_one_owners(api: Api) -> None:
    mine = [api.submit()["id"] for _ in range(2)]
    with make_key(api, "ads", Role.SUBMITTER) as ads:
        theirs = [ads.post("/v1/jobs", json=make_document()).json()["id"] for _ in range(3)]

        def list_ids(client: httpx.Client, **params: Any) -> set[str]:
            return {job["id"] for job in client.get("/v1/jobs", params=params).json()["items"]}

        assert list_ids(ads) == list_ids(ads, owner="ads") == set(theirs)
        assert list_ids(ads, owner=TEAM) == list_ids(ads, owner="nobody") == set()
        assert list_ids(api.viewer) == set(mine)
        assert list_ids(api.admin) == {*mine, *theirs}
        assert list_ids(api.admin, owner="ads") == set(theirs)
        first = ads.get("/v1/jobs", params={"limit": 2}).json()
        second = ads.get("/v1/jobs", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [job["id"] for page in (first, second) for job in page["items"]] == theirs[::-1]
    assert second["next_cursor"] is None


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plans"])
def test_a_warm_start_finds_no_job_of_another_owner(shared_api: Api, path: str) -> None:
    job_id, unknown_id = shared_api.submit()["id"], new_id("job")
    packed = Path(shared_api.services.settings.data_roots[0], "packed")
    packed.mkdir(exist_ok=True)
    (packed / PACKED_META).write_text("{}")

    def get_fault(source: str) -> tuple[str, str]:
        # Nothing is planned of packed rows where a path is refused, so that no trainer is needed.
        data = {"format": "packed", "train": ["packed"]}
        document = make_document(data=data, run={"warm_start": {"from": source}})
        with make_key(shared_api, "stranger", Role.SUBMITTER) as stranger:
            body = stranger.post(path, json=document).json()
        (fault,) = [error for error in body.get("errors") or body["fits"]["why"] if "warm_start" in error["field"]]
        return fault["field"], fault["message"].replace(source, "ID")

    assert get_fault(job_id) == get_fault(unknown_id) == ("run.warm_start.from", "'ID' is not a job of this service")


def test_events_name_the_owner_and_the_key_though_keys_of_two_owners_have_one_name(api: Api) -> None:
    for owner in ("alice", "bob"):
        with make_key(api, owner, Role.SUBMITTER, name="laptop") as laptop:
            job_id = laptop.post("/v1/jobs", json=make_document()).json()["id"]
            cancelled = laptop.post(f"/v1/jobs/{job_id}/cancel").json()
            events = laptop.get(f"/v1/jobs/{job_id}/events").json()["items"]
        assert cancelled["message"] == f"cancelled by {owner} (key laptop)"
        assert [(event["actor"], event["message"]) for event in events] == [
            (owner, f"submitted by {owner} (key laptop)"),
            (owner, f"cancelled by {owner} (key laptop)"),
        ]


def test_whoever_changes_the_job_of_another_owner_is_in_the_audit_log(api: Api) -> None:
    job_id = api.submit(behaviour="wait")["id"]
    with api.make_client(api.services.keys.create("boss", Role.ADMIN).key) as boss:
        for verb in ("hold", "release", "cancel"):
            assert boss.post(f"/v1/jobs/{job_id}/{verb}").status_code == 202
        assert boss.delete(f"/v1/jobs/{job_id}").status_code == 202
        events = boss.get("/v1/audit", params={"target": job_id}).json()["items"]
    assert [event["action"] for event in events] == ["job_deleted", "job_cancelled", "job_released", "job_held"]
    assert {event["actor"] for event in events} == {"boss"}
