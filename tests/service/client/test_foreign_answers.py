"""The client at an address where something else answers than a service."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from service.client import ApiKey, Client, Connection, LoginLink, ServiceError
from tests.service.client.test_retries import serve_statuses

PAGE = "<html>Welcome</html>"
REQUESTS: dict[str, Callable[[Client], Any]] = {
    "job": lambda client: client.job("job_1"),
    "jobs": lambda client: list(client.jobs()),
    "submit": lambda client: client.submit({}),
    "cancel": lambda client: client.cancel("job_1"),
    "delete": lambda client: client.delete("job_1"),
    "revoke_key": lambda client: client.revoke_key("key_1"),
    "metrics": lambda client: list(client.metrics("job_1")),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_page_in_place_of_an_answer_is_said_in_one_sentence_with_its_address(request_name: str) -> None:
    with (
        serve_statuses([200], PAGE) as (url, _),
        Client(url, "dlrm_key") as client,
        pytest.raises(ServiceError, match=f"^{url}/v1/.* as no DLRM service does; .*DLRM_URL") as refused,
    ):
        REQUESTS[request_name](client)
    assert "\n" not in str(refused.value)


def test_a_new_key_in_an_answer_that_cannot_be_read_is_not_shown() -> None:
    with (
        serve_statuses([201], {"id": "key_1", "key": "dlrm_secret"}) as (url, _),
        Client(url, "dlrm_mine") as client,
        pytest.raises(ServiceError) as refused,
    ):
        client.create_key("ann", "viewer")
    shown = "".join(traceback.format_exception(refused.value))
    assert "dlrm_secret" not in shown
    assert "dlrm_mine" not in shown


def test_secrets_are_not_shown_with_what_they_belong_to() -> None:
    time = "2026-01-01T00:00:00Z"
    key = {"id": "key_1", "name": "ann", "owner": "ann", "role": "viewer", "created_at": time, "key": "secret"}
    link = {"token": "secret", "owner": "ann", "role": "viewer", "expires_at": time}
    for holder in (ApiKey.model_validate(key), LoginLink.model_validate(link), Connection("http://a", "secret")):
        assert "secret" not in repr(holder)
