"""Rate limits: by key, by attempt, and by address for those without either."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from service.access.principal import Role
from service.http.request_origin import normalise_address
from service.settings import Settings
from tests.service.api import Api, serve_api
from tests.service.jobs.test_jobs_api import check_problem
from tests.service.reports.attempts import TOKEN, begin_next_attempt

SLOW = 0.01
"""Requests a second, of which one may be sent at once."""


@pytest.fixture
def limited(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Api]:
    """Service with the settings that the test gives as parameter."""
    changes: dict[str, Any] = request.param
    with serve_api(settings.model_copy(update=changes), runs_control_loop=False) as running:
        yield running


def check_too_many(response: httpx.Response) -> dict[str, Any]:
    problem = check_problem(response, 429, "too-many-requests")
    assert 1 <= int(response.headers["retry-after"]) <= 100
    assert response.headers["retry-after"] in problem["detail"]
    return problem


@pytest.mark.parametrize("limited", [{"requests_per_second": SLOW}], indirect=True)
def test_a_key_that_sends_too_much_is_refused_and_others_are_not(limited: Api) -> None:
    assert limited.viewer.get("/v1/jobs").status_code == 200
    check_too_many(limited.viewer.get("/v1/jobs"))
    assert limited.submitter.get("/v1/jobs").status_code == 200
    assert limited.anonymous.get("/healthz").status_code == 200
    assert limited.anonymous.get("/").status_code == 200


@pytest.mark.parametrize("limited", [{"requests_per_second_per_address": SLOW}], indirect=True)
def test_what_needs_no_key_is_limited_by_address(limited: Api) -> None:
    assert limited.anonymous.get("/").status_code == 200
    check_too_many(limited.anonymous.get("/signin"))
    check_too_many(limited.anonymous.get("/v1/jobs"))
    assert limited.viewer.get("/v1/jobs").status_code == 200
    for _ in range(3):
        assert limited.anonymous.get("/healthz").status_code == 200


@pytest.mark.parametrize("limited", [{"requests_per_second": SLOW}], indirect=True)
def test_attempts_have_a_limit_of_their_own(limited: Api) -> None:
    attempt = begin_next_attempt(limited, limited.submit()["id"])
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for _ in range(20):
        path = f"/v1/ingest/{attempt.id}?rank=0&stream=metrics"
        assert limited.anonymous.get(path, headers=headers).status_code == 200


@pytest.mark.parametrize("limited", [{"pushes_per_second": SLOW}], indirect=True)
def test_an_attempt_that_pushes_too_much_is_told_when_to_come_back(limited: Api) -> None:
    attempt = begin_next_attempt(limited, limited.submit()["id"])
    path = f"/v1/ingest/{attempt.id}?rank=0&stream=metrics"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert limited.anonymous.get(path, headers=headers).status_code == 200
    check_too_many(limited.anonymous.get(path, headers=headers))


@pytest.mark.parametrize("limited", [{"failures_per_minute": 3.0}], indirect=True)
def test_an_address_that_guesses_is_refused_and_who_has_a_key_there_is_not(limited: Api) -> None:
    wrong = limited.make_client("dlrm_wrong")
    assert [wrong.get("/v1/jobs").status_code for _ in range(3)] == [401] * 3
    check_too_many(wrong.get("/v1/jobs"))
    check_too_many(limited.anonymous.get("/v1/ingest/att_0", headers={"Authorization": "Bearer x"}))
    check_too_many(limited.anonymous.get("/v1/jobs", headers={"Cookie": "dlrm_session=x"}))
    assert limited.viewer.get("/v1/jobs").status_code == 200
    new_key = limited.services.keys.create("new", Role.VIEWER).key
    assert limited.make_client(new_key).get("/v1/jobs").status_code == 200


@pytest.mark.parametrize("limited", [{"failures_per_minute": 3.0}], indirect=True)
def test_sign_ins_that_fail_too_often_are_refused_and_right_ones_never(limited: Api) -> None:
    for _ in range(3):
        assert limited.anonymous.post("/v1/session", json={"token": "x"}).status_code == 401
    key = limited.services.keys.create("new", Role.VIEWER).key
    link = limited.admin.post("/v1/session/links", json={}).json()["token"]
    for wrong, right in (({"token": "x"}, {"key": key}), ({"key": "dlrm_wrong"}, {"token": link})):
        check_too_many(limited.anonymous.post("/v1/session", json=wrong))
        with limited.make_client(None) as browser:
            assert browser.post("/v1/session", json=right).status_code == 204
            assert browser.get("/v1/jobs").status_code == 200
    audited = limited.admin.get("/v1/audit", params={"action": "sign_in_failed"}).json()["items"]
    assert len(audited) == 3


@pytest.mark.parametrize("limited", [{"failures_per_minute": 3.0}], indirect=True)
def test_a_right_key_finds_a_turn_among_many_wrong_ones(limited: Api) -> None:
    keys = [limited.services.keys.create(f"new-{number}", Role.VIEWER).key for number in range(10)]
    wrong = ["dlrm_" + f"{number:043d}" for number in range(150)]

    def send(key: str) -> int:
        with limited.make_client(key) as client:
            return client.get("/v1/jobs").status_code

    with ThreadPoolExecutor(80) as pool:
        wrong_statuses = [pool.submit(send, key) for key in wrong]
        right_statuses = [pool.submit(send, key) for key in keys]
        assert {future.result() for future in right_statuses} == {200}
        assert {future.result() for future in wrong_statuses} <= {401, 429}


@pytest.mark.parametrize("limited", [{"requests_per_second_per_address": SLOW}], indirect=True)
def test_a_sign_in_is_not_refused_for_what_others_at_its_address_have_sent(limited: Api) -> None:
    key = limited.services.keys.create("new", Role.VIEWER).key
    assert limited.anonymous.get("/").status_code == 200
    check_too_many(limited.anonymous.get("/"))
    assert limited.anonymous.post("/v1/session", json={"key": key}).status_code == 204


@pytest.mark.parametrize(
    ("limited", "is_warned"), [({}, True), ({"trusted_proxies": "127.0.0.1"}, False)], indirect=["limited"]
)
def test_a_proxy_that_is_not_trusted_is_named_in_the_log_once(
    limited: Api, caplog: pytest.LogCaptureFixture, *, is_warned: bool
) -> None:
    logging.getLogger().addHandler(caplog.handler)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            limited.anonymous.get("/", headers={"X-Forwarded-For": "192.0.2.7"})
    named = [record for record in caplog.records if "proxy_not_trusted" in str(record.msg)]
    assert len(named) == is_warned


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
    ],
)
def test_the_addresses_of_one_network_of_ipv6_count_as_one(first: str, second: str, is_same: bool) -> None:
    assert (normalise_address(first) == normalise_address(second)) is is_same
