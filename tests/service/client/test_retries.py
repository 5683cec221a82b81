"""The client against a server that fails in ways a real one does only on bad days."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from service.client import Client, ServiceError, ServiceUnreachableError

JOB = {
    "id": "job_1",
    "name": "a",
    "state": "QUEUED",
    "created_at": "2026-01-01T00:00:00Z",
    "world_size": 2,
    "a_field_of_a_newer_service": 1,
}


@contextmanager
def server(statuses: list[int], body: Any = JOB) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server that answers with `statuses` in turn; its address, and what it was asked: method, idempotency key."""
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.command, self.headers.get("Idempotency-Key")))
            content = json.dumps(body).encode()
            self.send_response(statuses[min(len(asked), len(statuses)) - 1])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http_server.server_port}", asked
    finally:
        http_server.shutdown()
        thread.join()
        http_server.server_close()


def test_a_get_is_tried_again_while_the_service_is_unavailable() -> None:
    with server([503, 502, 200]) as (url, asked), Client(url, "dlrm_key") as client:
        assert client.job("job_1").state == "QUEUED"
    assert len(asked) == 3


def test_a_submission_is_tried_again_under_the_same_idempotency_key() -> None:
    with server([503, 201]) as (url, asked), Client(url, "dlrm_key") as client:
        client.submit({})
    keys = {key for _, key in asked}
    assert len(asked) == 2
    assert len(keys) == 1
    assert None not in keys


def test_two_submissions_have_two_idempotency_keys() -> None:
    with server([201]) as (url, asked), Client(url, "dlrm_key") as client:
        client.submit({})
        client.submit({})
    assert asked[0][1] != asked[1][1]


def test_a_cancel_is_not_tried_again() -> None:
    busy = {"title": "busy", "status": 503}
    with (
        server([503], busy) as (url, asked),
        Client(url, "dlrm_key") as client,
        pytest.raises(ServiceError, match="busy"),
    ):
        client.cancel("job_1")
    assert len(asked) == 1


def test_an_answer_that_is_no_problem_document_names_the_address() -> None:
    with (
        server([404], "no JSON object") as (url, _),
        Client(url, "dlrm_key") as client,
        pytest.raises(ServiceError) as said,
    ):
        client.job("x")
    assert f"{url}/v1/jobs/x answered 404" in str(said.value)


def test_a_service_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url, "dlrm_key") as client, pytest.raises(ServiceUnreachableError, match=f"{url}.*dlrm serve"):
            client.job("x")
