"""The client where the service fails, is silent, or is none: ways in which a real service fails only rarely."""

import json
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from cli.commands import jobs as commands
from cli.commands.service_access import MAX_WAIT_SECONDS, connect
from service.client import (
    ApiKey,
    Client,
    LoginLink,
    Patience,
    ServiceAwayError,
    ServiceError,
    ServiceUnreachableError,
    patience,
    transport,
    waiting,
)
from tests.cli.conftest import dlrm as dlrm  # the fixture

JOB = {
    "id": "job_1",
    "name": "a",
    "state": "QUEUED",
    "created_at": "2026-01-01T00:00:00Z",
    "world_size": 2,
    "a_field_of_a_newer_service": 1,
}
PAGE = "<html>Welcome</html>"
REQUESTS: dict[str, Callable[[Client], Any]] = {
    "job": lambda client: client.job("job_1"),
    "jobs": lambda client: list(client.jobs()),
    "submit": lambda client: client.submit({}),
    "cancel": lambda client: client.cancel("job_1"),
    "delete": lambda client: client.delete("job_1"),
    "revoke_key": lambda client: client.revoke_key("key_1"),
    "metrics": lambda client: list(client.metrics("job_1")),
    "curves": lambda client: client.curves("job_1"),
}
WAIT_SECONDS = 0.3


class Request(NamedTuple):
    method: str
    idempotency_key: str | None


@contextmanager
def serve_statuses(statuses: list[int], body: Any = JOB) -> Iterator[tuple[str, list[Request]]]:
    """Serve `statuses` in turn, and the last one from then on. Yield the address and the list of requests received."""
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            requests.append(Request(self.command, self.headers.get("Idempotency-Key")))
            content = json.dumps(body).encode()
            self.send_response(statuses[min(len(requests), len(statuses)) - 1])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http_server.server_port}", requests
    finally:
        http_server.shutdown()
        thread.join()
        http_server.server_close()


def test_a_get_is_tried_again_while_the_service_is_unavailable() -> None:
    with serve_statuses([503, 502, 200]) as (url, requests), Client(url, "dlrm_key") as client:
        assert client.job("job_1").state == "QUEUED"
    assert len(requests) == 3


@pytest.mark.slow
def test_a_follower_waits_for_a_service_that_is_unavailable_for_longer() -> None:
    ended = {**JOB, "state": "SUCCEEDED"}
    with serve_statuses([503] * 9 + [200], ended) as (url, requests), Client(url, "dlrm_key") as client:
        assert [job.state for job in client.follow("job_1", 0.0, Patience(60.0))] == ["SUCCEEDED"]
    assert len(requests) == 10


def test_a_follower_waits_neither_for_refusals_nor_for_unknown_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "RETRY_WAITS_SECONDS", (0.01,))
    with serve_statuses([404], {"status": 404, "title": "gone"}) as (url, requests), Client(url, "dlrm_key") as client:
        with pytest.raises(ServiceError, match="gone"):
            list(client.follow("job_1", 0.0, Patience(60.0)))
        assert len(requests) == 1
    with Client(url, "dlrm_key") as client, pytest.raises(ServiceUnreachableError, match="dlrm serve"):
        list(client.follow("job_1"))


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "RETRY_WAITS_SECONDS", ())
    with (
        serve_statuses([503]) as (url, _),
        Client(url, "dlrm_key") as client,
        pytest.raises(ServiceAwayError, match=r"does not answer since .*job continues"),
    ):
        list(client.follow("job_1", 0.0, Patience(0.3)))


def test_a_submission_is_tried_again_under_the_same_idempotency_key() -> None:
    with serve_statuses([503, 201]) as (url, requests), Client(url, "dlrm_key") as client:
        client.submit({})
    keys = {request.idempotency_key for request in requests}
    assert len(requests) == 2
    assert len(keys) == 1
    assert None not in keys


def test_two_submissions_have_two_idempotency_keys() -> None:
    with serve_statuses([201]) as (url, requests), Client(url, "dlrm_key") as client:
        client.submit({})
        client.submit({})
    assert requests[0].idempotency_key != requests[1].idempotency_key


def test_a_cancel_is_not_tried_again() -> None:
    busy = {"title": "busy", "status": 503}
    with (
        serve_statuses([503], busy) as (url, requests),
        Client(url, "dlrm_key") as client,
        pytest.raises(ServiceError, match="busy"),
    ):
        client.cancel("job_1")
    assert len(requests) == 1


def test_an_answer_that_is_no_problem_document_names_the_address() -> None:
    with (
        serve_statuses([404], "no JSON object") as (url, _),
        Client(url, "dlrm_key") as client,
        pytest.raises(ServiceError) as refused,
    ):
        client.job("x")
    assert f"{url}/v1/jobs/x answered 404" in str(refused.value)


def test_a_service_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "RETRY_WAITS_SECONDS", (0.01,))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with Client(url, "dlrm_key") as client, pytest.raises(ServiceUnreachableError, match=f"{url}.*dlrm serve"):
            client.job("x")


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
    for holder in (ApiKey.model_validate(key), LoginLink.model_validate(link)):
        assert "secret" not in repr(holder)


@pytest.fixture
def silent_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a service that is silent, at which silence is soon told."""
    monkeypatch.setattr(waiting, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(patience, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(patience, "MIN_ANSWER_SECONDS", 0.1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class Told(list[tuple[str, float]]):
    """What was told of silence."""

    def __call__(self, url: str, seconds_left: float) -> None:
        self.append((url, seconds_left))


def test_all_tries_of_a_request_together_wait_no_longer_than_one_may(silent_url: str) -> None:
    told = Told()
    with (
        Client(silent_url, "dlrm_key", WAIT_SECONDS, told) as client,
        pytest.raises(ServiceUnreachableError, match=r"does not answer \(nothing for 0 s\)"),
    ):
        client.job("job_1")
    # Were there two tries, the second one would have been told of, too.
    ((told_url, seconds_left),) = told
    assert told_url == silent_url
    assert 0.0 < seconds_left < WAIT_SECONDS


def test_nothing_is_told_of_a_service_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENCE_SECONDS", 60.0)
    told = Told()
    with serve_statuses([200]) as (url, _), Client(url, "dlrm_key", on_silence=told) as client:
        assert client.job("job_1").id == JOB["id"]
    assert told == []


def test_a_follower_hears_early_and_gives_up_with_its_patience(silent_url: str) -> None:
    told: list[ServiceAwayError] = []
    message = r"does not answer since .*nothing for 0 s.*job continues"
    # One try would last longer than the test may.
    with Client(silent_url, "dlrm_key", timeout_seconds=3600.0) as client:
        begin = datetime.now(UTC)
        with pytest.raises(ServiceAwayError, match=message) as given_up:
            list(client.follow("job_1", 0.0, Patience(WAIT_SECONDS, told.append)))
    (away,) = told
    assert away.since == given_up.value.since
    assert away.since - begin < timedelta(seconds=WAIT_SECONDS)


def test_a_command_says_whom_it_waits_for_and_then_gives_up(
    silent_url: str, monkeypatch: pytest.MonkeyPatch, dlrm: Callable[..., Any]
) -> None:
    assert MAX_WAIT_SECONDS <= 30.0
    monkeypatch.setattr(commands, "connect", lambda: connect(WAIT_SECONDS))
    monkeypatch.setenv("DLRM_URL", silent_url)
    monkeypatch.setenv("DLRM_API_KEY", "dlrm_secret\n")
    ended = dlrm("jobs")
    assert ended.code == 1
    first, second = ended.err.splitlines()
    assert first == f"waiting for the service at {silent_url} for up to 0 s"
    assert second.startswith(f"error: the service at {silent_url} does not answer (nothing for 0 s)")
    assert "dlrm_secret" not in ended.err
