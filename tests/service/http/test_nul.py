"""The character NUL, which PostgreSQL cannot store: refused wherever a request may have it, and named."""

import json

import pytest

from tests.service.api import Api, make_document
from tests.service.databases import on_both_databases
from tests.service.jobs.test_jobs_api import check_problem

pytestmark = on_both_databases

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs/%00",
        "/v1/jobs/job_0%00/events",
        "/v1/jobs/%00/logs",
        "/v1/keys/%00",
        "/v1/ingest/%00",
        "/jobs/%00",
        "/static/%00",
        "/%00",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_path_with_nul_is_refused(shared_api: Api, method: str, path: str) -> None:
    for client in (shared_api.anonymous, shared_api.admin):
        (fault,) = check_problem(client.request(method, path), 422, "invalid-request")["errors"]
        assert fault["field"] == "path"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("name=%00", "name"),
        ("name=a%00b", "name"),
        ("label=a%3A%00", "label"),
        ("label=%00%3Ab", "label"),
        ("cursor=%00", "cursor"),
        ("state=%00", "state"),
        ("%00=x", "%00"),
    ],
)
def test_a_query_with_nul_is_refused(shared_api: Api, query: str, field: str) -> None:
    (fault,) = check_problem(shared_api.viewer.get(f"/v1/jobs?{query}"), 422, "invalid-request")["errors"]
    assert fault["field"] == field
    assert "NUL" in fault["message"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "a\0"}, "name"),
        ({"labels": {"team": "\0"}}, "labels.team"),
        ({"labels": {"a\0b": "x"}}, "labels"),
        ({"data": {"train": ["day_0.tsv", "\0"]}}, "data.train.1"),
        ({"run": {"warm_start": {"from": "\0"}}}, "run.warm_start.from"),
        ({"\0": 1}, ""),
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plans"])
def test_a_document_with_nul_is_refused(shared_api: Api, path: str, changes: dict[str, object], field: str) -> None:
    response = shared_api.submitter.post(path, json=make_document() | changes)
    (fault,) = check_problem(response, 422, "invalid-request")["errors"]
    assert fault["field"] == field
    assert "NUL" in fault["message"]


@pytest.mark.parametrize("body", [{"name": "\0", "role": "viewer"}, {"name": "x", "role": "\0"}])
def test_a_key_with_nul_is_refused(shared_api: Api, body: dict[str, str]) -> None:
    check_problem(shared_api.admin.post("/v1/keys", json=body), 422, "invalid-request")


def test_a_sign_in_with_nul_is_refused(shared_api: Api) -> None:
    check_problem(shared_api.anonymous.post("/v1/session", json={"token": "\0"}), 422, "invalid-request")


def test_every_text_with_nul_is_named_at_once(shared_api: Api) -> None:
    content = json.dumps(make_document() | {"name": "\0", "labels": {"a": "\0", "b": "c"}})
    response = shared_api.submitter.post("/v1/jobs", content=content, headers=JSON)
    faults = check_problem(response, 422, "invalid-request")["errors"]
    assert {fault["field"] for fault in faults} == {"name", "labels.a"}
