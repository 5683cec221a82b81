"""A job that has ended is restarted as a new job with the same document."""

import json
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest

from dlrm.config import parse_job
from service.access.principal import Role
from tests.service.api import Api, make_document
from tests.service.jobs.keys import make_key
from tests.service.jobs.test_jobs_api import check_problem

EXAMPLES = Path(__file__).parents[3] / "examples"
DOCUMENT = {"name": "ads", "labels": {"team": "ads", "behaviour": "wait"}, "priority": 3, "max_restarts": 7}


def end_job(api: Api, **changes: Any) -> dict[str, Any]:
    """Submit a job and cancel it."""
    return api.submitter.post(f"/v1/jobs/{api.submit(**changes)['id']}/cancel").json()


def restart(client: httpx.Client, job_id: str, key: str | None = None) -> httpx.Response:
    return client.post(f"/v1/jobs/{job_id}/restart", headers={"Idempotency-Key": key} if key else {})


def test_a_restarted_job_is_a_new_one_with_the_same_document(shared_api: Api) -> None:
    old = end_job(shared_api, **DOCUMENT)
    response = restart(shared_api.submitter, old["id"])
    assert response.status_code == 201, response.text
    new = response.json()
    assert response.headers["location"] == f"/v1/jobs/{new['id']}"
    assert new["id"] != old["id"]
    assert (new["restarted_from"], old["restarted_from"]) == (old["id"], None)
    assert (new["state"], new["num_attempts"]) == ("QUEUED", 0)
    details = [shared_api.viewer.get(f"/v1/jobs/{job['id']}").json() for job in (old, new)]
    for name in ("name", "labels", "priority", "owner", "spec", "derived"):
        assert details[0][name] == details[1][name]
    (event,) = shared_api.viewer.get(f"/v1/jobs/{new['id']}/events").json()["items"]
    assert (event["reason"], event["message"]) == ("submitted", f"restart of {old['id']} by team (key submitter)")


def test_paths_are_resolved_anew(api: Api, data_root: Path) -> None:
    old = end_job(api)
    files = list(data_root.glob("day_*.tsv"))
    for file in files:
        file.rename(file.with_name(f"old-{file.name}"))
    problem = check_problem(restart(api.submitter, old["id"]), 422, "invalid-job")
    assert problem["errors"][0]["field"] == "data.train.0"


def test_a_running_job_is_not_restarted_and_the_error_says_what_to_do(api: Api) -> None:
    job_id = api.submit()["id"]
    cancel_first = "cancel it first, or wait for its end"
    advices = {"CANCELLING": "wait for its end", "PAUSED": "resume it, or cancel it first"}
    for state, advice in {"QUEUED": cancel_first, "RUNNING": cancel_first, **advices}.items():
        with api.services.database.write() as session:
            session.connection().exec_driver_sql(f"UPDATE jobs SET state = '{state}'")
        problem = check_problem(restart(api.submitter, job_id), 409, "conflict")
        assert problem["detail"] == f"{job_id} is {state}: only a job that has ended can be restarted; {advice}"
        assert problem["state"] == state


def test_one_key_restarts_a_job_once(api: Api) -> None:
    old, other = end_job(api), end_job(api)
    first, second = (restart(api.submitter, old["id"], "k") for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    check_problem(restart(api.submitter, other["id"], "k"), 422, "idempotency-mismatch")
    submitted = api.submitter.post("/v1/jobs", json=make_document(), headers={"Idempotency-Key": "k"})
    assert first.json()["id"] in check_problem(submitted, 422, "idempotency-mismatch")["detail"]
    assert restart(api.submitter, old["id"], "another").json()["id"] != first.json()["id"]


def test_what_an_admin_restarts_stays_with_its_owner(shared_api: Api) -> None:
    with make_key(shared_api, "ads", Role.SUBMITTER) as ads:
        old = ads.post("/v1/jobs", json=make_document()).json()
        ads.post(f"/v1/jobs/{old['id']}/cancel")
        new = restart(shared_api.admin, old["id"]).json()
        assert ads.get(f"/v1/jobs/{new['id']}").json()["owner"] == "ads"
    assert new["created_by"] == "admin"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_a_document_with_its_defaults_filled_in_is_the_same_document(path: Path) -> None:
    job = parse_job(tomllib.loads(path.read_text()))
    assert parse_job(json.loads(job.model_dump_json())) == job


@pytest.mark.parametrize(
    "changes",
    [
        {"moments": None},
        {"variance_reduction": {}, "dense_optimizer": {"name": "lars"}},
        {"variance_reduction": {"scale": "update"}, "dense_optimizer": {"name": "lamb"}},
        {"dense_optimizer": {"name": "sgd", "schedule": {"decay": "wsd"}}, "table_optimizer": {"name": "sgd"}},
        {"sharding": {"tables": [{"pattern": "C*", "type": "row_wise"}], "plan": "auto"}},
        {"model": {"architecture": "dcn_v2"}, "precision": "bf16"},
        {"run": {"warm_start": {"from": "job_01M82T17ZZK9ARB33PXB56K6JB"}}},
        {"data": {"format": "synthetic"}},
        {"data": {"train": ["a.tsv"], "eval": ["b.tsv"]}},
    ],
)
def test_settings_that_depend_on_each_other_survive_too(changes: dict[str, Any]) -> None:
    job = parse_job(make_document(**changes))
    assert parse_job(json.loads(job.model_dump_json())) == job
