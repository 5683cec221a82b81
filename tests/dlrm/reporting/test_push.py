"""Pushing reports over HTTP, to a server of the test's own that counts lines as the service does."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dlrm.record import AttemptDirectory, EventReport, SpoolReader, SpoolWriter
from dlrm.reporting import push
from dlrm.reporting.push import Pusher
from service.http.request_body import BodyLimits
from tests.patience import wait_until

NUM_RANKS = 1


class Receiver(ThreadingHTTPServer):
    """Keeps the number of the last line of each stream; refuses lines that are not what they are numbered."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.acknowledged: dict[str, int] = {}
        self.faults: list[str] = []
        self.num_requests_to_refuse = 0
        self.num_requests = 0
        self.largest_body = 0
        """Bytes of the largest body."""
        self.is_closed = False
        """Whether the attempt has ended for the service."""
        self.before_answer: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/ingest"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.server.num_requests += 1
        if self.server.is_closed:
            self.send_error(410)
            return
        stream = self.path.rsplit("stream=", 1)[1]
        self._answer(self.server.acknowledged.get(stream, 0))

    def do_POST(self) -> None:
        self.server.num_requests += 1
        num_bytes = int(self.headers["Content-Length"])
        self.server.largest_body = max(self.server.largest_body, num_bytes)
        body = json.loads(self.rfile.read(num_bytes))
        if self.server.is_closed:
            self.send_error(410)
            return
        if self.server.num_requests_to_refuse:
            self.server.num_requests_to_refuse -= 1
            self.send_error(503)
            return
        for number, line in enumerate(body["lines"], start=body["first_seq"]):
            if json.loads(line)["seq"] != number:
                self.server.faults.append(f"line {number} is {line}")
        known = self.server.acknowledged.get(body["stream"], 0)
        if body["first_seq"] > known + 1:
            self.server.faults.append(f"a gap before {body['first_seq']}")
        self.server.acknowledged[body["stream"]] = max(known, body["first_seq"] + len(body["lines"]) - 1)
        self.server.before_answer()
        self._answer(self.server.acknowledged[body["stream"]])

    def _answer(self, acknowledged: int) -> None:
        content = json.dumps({"acknowledged_seq": acknowledged}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def attempt(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> AttemptDirectory:
    monkeypatch.setattr(push, "INTERVAL_SECONDS", 0.02)
    attempt = AttemptDirectory(tmp_path)
    attempt.create()
    attempt.push_target.write_text(json.dumps({"url": receiver.url, "token": "secret"}))
    return attempt


def write(writer: SpoolWriter, num_lines: int) -> None:
    for number in range(num_lines):
        writer.write(EventReport(name="n", message=str(number)))


def test_every_line_arrives_in_order_also_after_refusals(attempt: AttemptDirectory, receiver: Receiver):
    receiver.num_requests_to_refuse = 2
    writer = SpoolWriter(attempt.spool_file(0, "events"))
    pusher = Pusher(attempt, range(NUM_RANKS))
    pusher.start()
    for _ in range(5):
        write(writer, 700)
    pusher.close()
    assert receiver.acknowledged["events"] == 3500
    assert receiver.faults == []


def test_lines_that_the_service_read_itself_meanwhile_are_not_sent_under_a_wrong_number(
    attempt: AttemptDirectory, receiver: Receiver
):
    path = attempt.spool_file(0, "events")
    writer = SpoolWriter(path)
    write(writer, 10)

    def read_the_file_itself() -> None:
        receiver.before_answer = lambda: None
        write(writer, 5)
        receiver.acknowledged["events"] = len(SpoolReader(path).read())
        write(writer, 5)

    receiver.before_answer = read_the_file_itself
    pusher = Pusher(attempt, range(NUM_RANKS))
    pusher.start()
    pusher.close()
    assert receiver.acknowledged["events"] == 20
    assert receiver.faults == []


def test_long_lines_are_sent_in_bodies_that_the_service_takes(attempt: AttemptDirectory, receiver: Receiver):
    writer = SpoolWriter(attempt.spool_file(0, "events"))
    for number in range(300):
        # Quotes take two bytes in JSON, and four once the line is a text of the body.
        writer.write(EventReport(name="n", message=f"{number} {chr(34) * 40_000}"))
    pusher = Pusher(attempt, range(NUM_RANKS))
    pusher.start()
    pusher.close()
    wait_until(lambda: receiver.acknowledged.get("events") == 300)
    assert receiver.faults == []
    assert receiver.largest_body <= BodyLimits().max_ingest_bytes


@pytest.mark.parametrize("num_lines_before", [0, 3])
def test_pushing_ends_calmly_once_the_service_has_closed_the_reports(
    attempt: AttemptDirectory, receiver: Receiver, caplog: pytest.LogCaptureFixture, num_lines_before: int
):
    caplog.set_level(logging.INFO)
    writer = SpoolWriter(attempt.spool_file(0, "events"))
    pusher = Pusher(attempt, range(NUM_RANKS))
    write(writer, num_lines_before)
    if num_lines_before == 0:
        receiver.is_closed = True
    pusher.start()
    if num_lines_before:
        wait_until(lambda: receiver.acknowledged.get("events") == num_lines_before)
        receiver.is_closed = True
    write(writer, 2)
    wait_until(lambda: not pusher._thread.is_alive())
    num_requests = receiver.num_requests
    write(writer, 2)
    pusher.close()
    assert receiver.num_requests == num_requests
    assert [record.levelname for record in caplog.records if "reports" in record.message] == ["INFO"]
    assert len(SpoolReader(attempt.spool_file(0, "events")).read()) == num_lines_before + 4
