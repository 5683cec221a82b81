"""Requests that are not quite right: each is told what is wrong, instead of being guessed at."""

import json
from typing import Any

import httpx
import pytest

from tests.service.api import Api, make_document
from tests.service.jobs.test_jobs_api import check_problem
from tests.service.raw import connect, get_key, make_head

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("path", ["/v1/jobs/", "/healthz/", "/openapi.json/", "/v1/capacity/", "/jobs/job_0/"])
def test_a_slash_too_many_leads_nowhere_and_the_right_path_is_named(shared_api: Api, path: str) -> None:
    response = shared_api.viewer.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
    problem = check_problem(response, 404, "not-found")
    assert f"use {path.removesuffix('/')}" in problem["detail"]
    assert "evil.example" not in f"{response.headers}{problem}"


@pytest.mark.parametrize("path", ["/static", "/static/", "/nothing/", "//v1/jobs", "/v1/../v1/jobs"])
def test_a_path_that_is_none_leads_nowhere(shared_api: Api, path: str) -> None:
    with connect(shared_api.url) as connection:
        connection.send(make_head("GET", path, get_key(shared_api.viewer.headers), connection="close"))
        assert connection.read_answer().status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/static/0/style/base.css",
        "/v1/jobs",
        "/v1/jobs/{job}",
        "/x",
    ],
)
def test_head_answers_as_get_does_without_a_body(live_api: Api, path: str) -> None:
    path = path.format(job=live_api.submit(data={"train": ["day_0.tsv"]})["id"])
    got = live_api.viewer.get(path)
    with connect(live_api.url) as connection:
        connection.send(make_head("HEAD", path, get_key(live_api.viewer.headers), connection="close"))
        head, _, body = connection.read_to_end().partition(b"\r\n\r\n")
    assert body == b""
    assert head.startswith(b"HTTP/1.1 %d " % got.status_code)
    assert got.headers["content-type"].encode() in head


def test_head_is_refused_where_get_is(shared_api: Api) -> None:
    response = shared_api.submitter.head("/v1/plans")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("path", "name", "message", "valid"),
    [
        (
            "/v1/jobs?limt=5",
            "limt",
            "did you mean limit?",
            "cursor, finished_after, finished_before, label, limit, name, owner, q, state",
        ),
        ("/v1/jobs/{job}?x=", "x", "is not a parameter", "no parameters"),
        ("/v1/jobs/{job}/curves?name=loss", "name", "did you mean names?", "attempt, names"),
        ("/v1/jobs?limit=5&limit=6", "limit", "is given 2 times", "limit once"),
        ("/v1/jobs?name=a&name=a", "name", "is given 2 times", "name once"),
        ("/healthz?verbose", "verbose", "is not a parameter", "no parameters"),
    ],
)
def test_a_query_parameter_that_is_none_or_comes_twice_is_named(
    shared_api: Api, path: str, name: str, message: str, valid: str
) -> None:
    response = shared_api.viewer.get(path.format(job=shared_api.submit()["id"]))
    (fault,) = check_problem(response, 422, "invalid-request")["errors"]
    assert fault["field"] == name
    assert message in fault["message"]
    assert valid in fault["valid"]


def test_a_parameter_that_may_be_repeated_may_be(shared_api: Api) -> None:
    assert shared_api.viewer.get("/v1/jobs?state=QUEUED&state=RUNNING&label=a:b&label=c:d").status_code == 200


def test_parameters_of_a_change_are_refused_too(shared_api: Api) -> None:
    job_id = shared_api.submit()["id"]
    check_problem(shared_api.submitter.post(f"/v1/jobs/{job_id}/cancel?force=1"), 422, "invalid-request")
    assert shared_api.viewer.get(f"/v1/jobs/{job_id}").json()["state"] == "QUEUED"


@pytest.mark.parametrize("path", ["/healthz", "/v1/jobs"])
@pytest.mark.parametrize("name", ["label=a:b", "x", ""])
def test_a_query_of_very_many_parameters_is_refused_as_one_fault(shared_api: Api, path: str, name: str) -> None:
    response = shared_api.viewer.get(f"{path}?{'&'.join([name] * 101)}")
    (fault,) = check_problem(response, 422, "invalid-request")["errors"]
    assert fault["field"] == "query"
    assert "100" in fault["valid"]


def test_a_hundred_labels_may_be_looked_for(shared_api: Api) -> None:
    query = "&".join(f"label=a:{number}" for number in range(100))
    assert shared_api.viewer.get(f"/v1/jobs?{query}").status_code == 200


@pytest.mark.parametrize("path", ["/v1/jobs/%ff", "/jobs/%ed%a0%80", "/%c3"])
def test_a_path_that_is_not_utf_8_is_refused(shared_api: Api, path: str) -> None:
    problem = check_problem(shared_api.viewer.get(path), 400, "malformed-request")
    assert "UTF-8" in problem["detail"]


@pytest.mark.parametrize("query", ["name=%ff", "name=%ed%a0%80", "%ff=x"])
def test_a_query_that_is_not_utf_8_is_refused(shared_api: Api, query: str) -> None:
    problem = check_problem(shared_api.viewer.get(f"/v1/jobs?{query}"), 400, "malformed-request")
    assert "UTF-8" in problem["detail"]


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b'{"name": "a", "name": "b"}', "'name' occurs twice"),
        (b'{"data": {"train": ["a"], "train": ["b"]}}', "'train' occurs twice"),
        (b'{"priority": NaN}', "NaN is not JSON"),
        (b'{"priority": -Infinity}', "-Infinity is not JSON"),
        (b'{"priority": 1e999}', "1e999 is too large"),
        (b"[" * 100 + b"]" * 100, "nested too deeply"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nested too deeply"),
        ('{"name": "a"}'.encode("utf-16")[:-1], "not UTF-16"),
        (b'{"name": "a\x00"}', "control character"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/session"])
def test_json_with_two_meanings_or_none_is_refused(shared_api: Api, path: str, body: bytes, wrong: str) -> None:
    response = shared_api.submitter.post(path, content=body, headers=JSON)
    problem = check_problem(response, 400, "malformed-json")
    assert wrong in problem["detail"]


@pytest.mark.parametrize("item", [b"[]", b"{}", b'""', b"0", b'"\\"[,"', b"[0]", b'{"a":0}'])
def test_a_body_of_very_many_values_is_refused_before_they_take_memory(shared_api: Api, item: bytes) -> None:
    body = b'{"name": [' + b",".join([item] * 20_000) + b"]}"
    problem = check_problem(shared_api.submitter.post("/v1/jobs", content=body, headers=JSON), 413, "too-large")
    assert "20,000 values" in problem["detail"]


@pytest.mark.parametrize("text", [b",[{:" * 10_000, rb"\"," * 20_000, rb"\\\"[" * 20_000])
def test_what_looks_like_values_within_a_text_is_none(shared_api: Api, text: bytes) -> None:
    response = shared_api.submitter.post("/v1/jobs", content=b'{"name": "' + text + b'"}', headers=JSON)
    assert "name" in {fault["field"] for fault in check_problem(response, 422, "invalid-job")["errors"]}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"name": "\\ud800"}', "name"),
        (b'{"data": {"train": ["day_0.tsv", "\\udfff"]}}', "data.train.1"),
        (b'{"labels": {"\\ud800": "x"}}', "labels"),
    ],
)
def test_half_a_character_is_refused_with_its_field(shared_api: Api, body: bytes, field: str) -> None:
    response = shared_api.submitter.post("/v1/jobs", content=body, headers=JSON)
    (fault,) = check_problem(response, 422, "invalid-request")["errors"]
    assert fault["field"] == field
    assert "surrogate" in fault["message"]


@pytest.mark.parametrize("name", ["authorization", "content-type", "idempotency-key"])
def test_a_header_that_comes_twice_is_refused(shared_api: Api, name: str) -> None:
    values = {"authorization": shared_api.submitter.headers["authorization"], "content-type": "application/json"}
    value = values.get(name, "key")
    response = httpx.post(
        f"{shared_api.url}/v1/jobs",
        content=json.dumps(make_document()),
        headers=[*values.items(), (name, value)] + ([(name, value)] if name not in values else []),
    )
    assert name in check_problem(response, 400, "malformed-request")["detail"]


@pytest.mark.parametrize("key", ["a\tb", "\x01", "k\xfcche", "x" * 256])
def test_an_idempotency_key_is_printable_and_short(shared_api: Api, key: str) -> None:
    headers: Any = {"Idempotency-Key": key.encode("latin-1")}
    response = shared_api.submitter.post("/v1/jobs", json=make_document(), headers=headers)
    (fault,) = check_problem(response, 422, "invalid-request")["errors"]
    assert fault["field"] == "idempotency-key"


@pytest.mark.parametrize(
    "path", ["/v1/jobs/%00", "/v1/jobs/job_0%00/events", "/v1/ingest/%00", "/static/0/%00", "/%00"]
)
def test_a_path_with_nul_which_no_database_stores_is_refused(shared_api: Api, path: str) -> None:
    for client in (shared_api.anonymous, shared_api.admin):
        for method in ("GET", "POST", "DELETE"):
            (fault,) = check_problem(client.request(method, path), 422, "invalid-request")["errors"]
            assert fault["field"] == "path"


@pytest.mark.parametrize(
    ("query", "field"), [("name=a%00b", "name"), ("label=%00%3Ab", "label"), ("cursor=%00", "cursor"), ("%00=x", "%00")]
)
def test_a_query_with_nul_is_refused(shared_api: Api, query: str, field: str) -> None:
    (fault,) = check_problem(shared_api.viewer.get(f"/v1/jobs?{query}"), 422, "invalid-request")["errors"]
    assert fault["field"] == field
    assert "NUL" in fault["message"]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"name": "a\0"}, {"name"}),
        ({"labels": {"a\0b": "x"}}, {"labels"}),
        ({"data": {"train": ["day_0.tsv", "\0"]}}, {"data.train.1"}),
        ({"\0": 1}, {""}),
        ({"name": "\0", "labels": {"a": "\0", "b": "c"}}, {"name", "labels.a"}),
    ],
)
def test_every_text_of_a_document_with_nul_is_named(
    shared_api: Api, changes: dict[str, object], fields: set[str]
) -> None:
    response = shared_api.submitter.post("/v1/jobs", json=make_document() | changes)
    faults = check_problem(response, 422, "invalid-request")["errors"]
    assert {fault["field"] for fault in faults} == fields
    assert all("NUL" in fault["message"] for fault in faults)


def test_a_key_and_a_sign_in_with_nul_are_refused(shared_api: Api) -> None:
    for client, path, body in (
        (shared_api.admin, "/v1/keys", {"name": "\0", "role": "viewer"}),
        (shared_api.anonymous, "/v1/session", {"token": "\0"}),
    ):
        check_problem(client.post(path, json=body), 422, "invalid-request")
