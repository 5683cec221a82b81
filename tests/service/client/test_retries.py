"""The client against a server that fails in ways in which a real service fails only rarely."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from service.client import Client, Patience, ServiceAwayError, ServiceError, ServiceUnreachableError, transport

JOB = {
    "id": "job_1",
    "name": "a",
    "state": "QUEUED",
    "created_at": "2026-01-01T00:00:00Z",
    "world_size": 2,
    "a_field_of_a_newer_service": 1,
}


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


def test_a_follower_waits_for_a_service_that_is_unavailable_for_longer() -> None:
    ended = {**JOB, "state": "SUCCEEDED"}
    with serve_statuses([503] * 9 + [200], ended) as (url, requests), Client(url, "dlrm_key") as client:
        assert [job.state for job in client.follow("job_1", 0.0, Patience(60.0))] == ["SUCCEEDED"]
    assert len(requests) == 10


def test_a_follower_does_not_wait_for_what_is_refused_nor_for_a_service_that_never_answered() -> None:
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


def test_a_service_that_is_not_there_is_named() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with Client(url, "dlrm_key") as client, pytest.raises(ServiceUnreachableError, match=f"{url}.*dlrm serve"):
            client.job("x")
