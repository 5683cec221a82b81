"""The gate: who sends a request is known before a byte of its body is read."""

import pytest

from tests.service.api import Api
from tests.service.raw import connect, get_key, make_head
from tests.service.reports.attempts import TOKEN, begin_next_attempt, push_lines

MANY_BYTES = 16 * 2**20


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plans", "/v1/keys", "/v1/ingest/att_0", "/v1/nothing"])
@pytest.mark.parametrize("key", [None, "dlrm_wrong", ""])
def test_a_body_without_a_key_is_refused_before_it_has_come(shared_api: Api, path: str, key: str | None) -> None:
    head = make_head("POST", path, key, content_type="application/json", content_length=str(MANY_BYTES))
    with connect(shared_api.url) as connection:
        connection.send(head, b'{"name": "')
        answer = connection.read_answer()
        assert answer.status == 401
        assert answer.headers["connection"] == "close"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.problem["type"] == "urn:dlrm:problem:unauthenticated"
        assert connection.read_to_end() == b""


def test_an_attempts_token_opens_that_attempt_alone(shared_api: Api) -> None:
    attempts = [begin_next_attempt(shared_api, shared_api.submit()["id"]) for _ in range(2)]
    with shared_api.services.database.write() as session:
        session.get_one(type(attempts[1]), attempts[1].id).token_hash = "another"
    assert [push_lines(shared_api, attempt, []).status_code for attempt in attempts] == [200, 401]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert shared_api.anonymous.get("/v1/jobs", headers=headers).status_code == 401


def test_a_client_that_waits_to_be_asked_for_its_body_is_refused_without_it(shared_api: Api) -> None:
    head = make_head("POST", "/v1/jobs", content_type="application/json", content_length="9", expect="100-continue")
    with connect(shared_api.url) as connection:
        connection.send(head)
        assert connection.read_answer().status == 401


def test_a_client_with_a_key_that_waits_to_be_asked_for_its_body_is_asked(shared_api: Api) -> None:
    key = get_key(shared_api.submitter.headers)
    head = make_head(
        "POST", "/v1/jobs", key, content_type="application/json", content_length="2", expect="100-continue"
    )
    with connect(shared_api.url) as connection:
        connection.send(head)
        assert connection.read_answer().status == 100
        connection.send(b"{}")
        assert connection.read_answer().status == 422


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/static/0/style/base.css", "/nothing", "/openapi.json"])
def test_no_body_is_read_where_none_is_wanted(shared_api: Api, method: str, path: str) -> None:
    head = make_head(method, path, content_type="application/json", content_length=str(MANY_BYTES))
    with connect(shared_api.url) as connection:
        connection.send(head, b'{"name": "')
        answer = connection.read_answer()
        assert answer.status == (200 if method == "GET" and path not in {"/nothing", "/readyz"} else answer.status)
        assert answer.headers["connection"] == "close"
        connection.read_to_end()


def test_a_sign_in_needs_no_key_and_has_a_small_body(shared_api: Api) -> None:
    assert shared_api.anonymous.post("/v1/session", json={"token": "x"}).status_code == 401
    answer = shared_api.anonymous.post("/v1/session", json={"token": "x" * 5000})
    assert answer.status_code == 413
    assert "4,096 bytes" in answer.json()["detail"]


def test_a_client_that_sends_all_of_a_large_body_learns_that_it_needs_a_key(shared_api: Api) -> None:
    headers = {"content-type": "application/json"}
    response = shared_api.anonymous.post("/v1/ingest/att_0", content=b" " * MANY_BYTES, headers=headers)
    assert response.status_code == 401
