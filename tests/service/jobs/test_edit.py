"""Labels and priority of a job that was submitted are changed, by those who may, and an event says so."""

import httpx
import pytest

from service.access.principal import Role
from tests.service.api import Api
from tests.service.databases import on_both_databases
from tests.service.jobs.keys import make_key
from tests.service.jobs.test_hold import list_events, set_state
from tests.service.jobs.test_jobs_api import check_problem


def edit(client: httpx.Client, job_id: str, **changes: object) -> httpx.Response:
    return client.patch(f"/v1/jobs/{job_id}", json=changes)


@on_both_databases
def test_labels_are_set_and_removed_and_an_event_says_which(api: Api) -> None:
    job_id = api.submit(labels={"team": "ads", "draft": "yes", "kept": "as it is"})["id"]
    edited = edit(api.submitter, job_id, labels={"team": "news", "draft": None, "new": "1"}, priority=7).json()
    assert edited["labels"] == {"team": "news", "kept": "as it is", "new": "1"}
    assert edited["priority"] == 7
    assert [job["id"] for job in api.viewer.get("/v1/jobs", params={"label": "team:news"}).json()["items"]] == [job_id]
    assert not api.viewer.get("/v1/jobs", params={"label": "draft:yes"}).json()["items"]
    assert api.viewer.get(f"/v1/jobs/{job_id}").json()["spec"]["labels"] == edited["labels"]
    last = list_events(api, job_id)[-1]
    assert (last["kind"], last["name"], last["actor"]) == ("action", "edited", "team")
    words = "priority 0 -> 7, label team = news, label new = 1, no label draft by team (key submitter)"
    assert last["message"] == words
    assert edit(api.submitter, job_id, priority=7).status_code == 200
    assert list_events(api, job_id)[-1] == last


def test_a_job_of_higher_priority_starts_first(api: Api) -> None:
    cores = {"workers_per_node": 4, "memory": "1GiB"}
    first, second = (api.submit(resources=cores)["id"] for _ in range(2))
    edit(api.submitter, second, priority=1)
    api.services.control.run_once()
    states = {job_id: api.viewer.get(f"/v1/jobs/{job_id}").json()["state"] for job_id in (first, second)}
    assert states[first] == "QUEUED"
    assert states[second] in ("STARTING", "RUNNING")


def test_the_priority_of_an_ended_job_stays_and_its_labels_change(api: Api) -> None:
    job_id = api.submit()["id"]
    set_state(api, "SUCCEEDED")
    problem = check_problem(edit(api.submitter, job_id, priority=1), 409, "conflict")
    assert "only its labels can be changed" in problem["detail"]
    assert edit(api.submitter, job_id, labels={"best": "yes"}).json()["labels"]["best"] == "yes"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"priority": 101}, "priority"),
        ({"priority": True}, "priority"),
        ({"labels": {"a b": "c"}}, "labels.a b.[key]"),
        ({"labels": {"a": "c" * 64}}, "labels.a"),
        ({"labels": {f"l{number}": "" for number in range(33)}}, "labels"),
        ({"label": {}}, "label"),
    ],
)
def test_what_a_document_may_not_have_is_refused(api: Api, changes: dict[str, object], field: str) -> None:
    job_id = api.submit()["id"]
    refused = edit(api.submitter, job_id, **changes)
    assert refused.status_code == 422
    assert [error["field"] for error in refused.json()["errors"]] == [field]
    assert len(list_events(api, job_id)) == 1


def test_only_a_submitter_who_knows_of_a_job_edits_it_and_foreign_changes_are_audited(api: Api) -> None:
    job_id = api.submit()["id"]
    assert edit(api.viewer, job_id, priority=1).status_code == 403
    with make_key(api, "other", Role.SUBMITTER) as other:
        assert edit(other, job_id, priority=1).status_code == 404
    with make_key(api, "root", Role.ADMIN) as root:
        assert edit(root, job_id, priority=1).status_code == 200
        rows = root.get("/v1/audit", params={"action": "job_edited"}).json()["items"]
    assert [(row["actor"], row["target"]) for row in rows] == [("root", job_id)]
