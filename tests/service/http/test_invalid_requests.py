"""Requests that do not fit their route are told what would, in a sentence."""

from typing import Any

import pytest

from tests.service.api import TEAM, Api, make_document
from tests.service.jobs.test_jobs_api import check_problem


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("jobs?limit=0", "limit: '0' is not a valid number (valid: a whole number from 1 to 200)"),
        ("jobs?limit=many", "limit: 'many' is not a valid number (valid: a whole number from 1 to 200)"),
        (
            "jobs/{job}/metrics?limit=10001",
            "limit: '10001' is not a valid number (valid: a whole number from 1 to 10000)",
        ),
        ("jobs/{job}/metrics?attempt=0", "a whole number from 1 to 2147483647)"),
        ("jobs?q=", "q: is too short (valid: at least 1 character)"),
        (f"jobs?name={64 * 'a'}", "name: is too long (valid: at most 63 characters)"),
        ("jobs?state=DONE", "state: 'DONE' is not one of the valid values (valid: 'QUEUED'"),
        ("jobs?created_after=soon", "created_after: should be a date or a time from 1970 to 2999"),
    ],
)
def test_a_parameter_that_is_not_valid_is_told_what_is(shared_api: Api, query: str, fault: str) -> None:
    response = shared_api.viewer.get(f"/v1/{query.format(job=shared_api.submit()['id'])}")
    assert fault in check_problem(response, 422, "invalid-request")["detail"]


def test_an_idempotency_key_that_is_not_valid_is_told_its_characters(shared_api: Api) -> None:
    response = shared_api.submitter.post("/v1/jobs", json=make_document(), headers={"Idempotency-Key": "a\tb"})
    detail = check_problem(response, 422, "invalid-request")["detail"]
    assert detail == r"idempotency-key: 'a\tb' is not valid (valid: 1 to 255 printable ASCII characters)"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (
            {"num_core": 1},
            "num_core: is not a field of this body; did you mean num_cores? "
            "(valid: memory_bytes, num_cores, num_gpus, num_queued, num_running)",
        ),
        ({"num_cores": -1}, "num_cores: this is not a valid number (valid: a whole number from 0 to 2147483647)"),
        ({"num_cores": 1.5}, "num_cores: this is not a valid number (valid: a whole number from 0 to 2147483647)"),
        (
            [],
            "body: should be an object, not a list "
            "(valid: an object with the fields num_cores, memory_bytes, num_gpus, num_running, num_queued)",
        ),
    ],
)
def test_a_quota_that_is_not_valid_is_told_what_is(shared_api: Api, body: Any, fault: str) -> None:
    response = shared_api.admin.put(f"/v1/quotas/{TEAM}", json=body)
    assert check_problem(response, 422, "invalid-request")["detail"] == fault


def test_a_quota_of_what_is_no_owner_is_told_what_is_one(shared_api: Api) -> None:
    detail = check_problem(shared_api.admin.put("/v1/quotas/a b", json={}), 422, "invalid-request")["detail"]
    assert detail == "owner: 'a b' is not valid (valid: an owner of keys, as `dlrm keys list` shows it, or * for all)"


@pytest.mark.parametrize(
    ("body", "given"), [([], "a list"), ("text", "a text"), (7, "a number"), (True, "true or false")]
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plans"])
def test_a_body_that_is_no_document_is_told_what_one_is(shared_api: Api, path: str, body: Any, given: str) -> None:
    detail = check_problem(shared_api.submitter.post(path, json=body), 422, "invalid-request")["detail"]
    example = '{"data": {"train": ["day_0.tsv"]}}'
    assert detail == f"body: should be an object, not {given} (valid: a job document, such as {example})"


def test_a_key_is_told_its_names_and_what_is_missing(shared_api: Api) -> None:
    response = shared_api.admin.post("/v1/keys", json={"name": "a b", "expires_in_days": 0})
    name, role, days = check_problem(response, 422, "invalid-request")["errors"]
    assert (name["field"], name["message"]) == ("name", "this is not valid")
    assert "1 to 63 letters" in name["valid"]
    assert (role["field"], role["message"]) == ("role", "is required, but missing")
    assert (days["field"], days["valid"]) == ("expires_in_days", "a whole number from 1 to 3650")


def test_a_secret_that_is_not_valid_is_not_repeated(shared_api: Api) -> None:
    response = shared_api.anonymous.post("/v1/session", json={"token": 300 * "secret", "password": "secret"})
    assert "secret" not in response.text
    assert check_problem(response, 422, "invalid-request")["errors"]
