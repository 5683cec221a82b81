"""Pushing reports over HTTP, to a server of the test's own that counts lines as the service does."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrm.record import AttemptDirectory, EventReport, SpoolReader, SpoolWriter
from dlrm.reporting import push
from dlrm.reporting.push import Pusher
from service.http.request_body import BodyLimits
from tests.dlrm.reporting.line_server import LineServer, serve_lines
from tests.patience import wait_until

NUM_RANKS = 1


@pytest.fixture
def server() -> Iterator[LineServer]:
    with serve_lines() as running:
        yield running


@pytest.fixture
def attempt(tmp_path: Path, server: LineServer, monkeypatch: pytest.MonkeyPatch) -> AttemptDirectory:
    monkeypatch.setattr(push, "INTERVAL_SECONDS", 0.02)
    attempt = AttemptDirectory(tmp_path)
    attempt.create()
    server.write_target(attempt.push_target, shares_files=True)
    return attempt


def write(writer: SpoolWriter, num_lines: int) -> None:
    for number in range(num_lines):
        writer.write(EventReport(name="n", message=str(number)))


def test_every_line_arrives_in_order_also_after_refusals(attempt: AttemptDirectory, server: LineServer):
    server.num_to_refuse = 2
    writer = SpoolWriter(attempt.spool_file(0, "events"))
    pusher = Pusher(attempt, range(NUM_RANKS))
    pusher.start()
    for _ in range(5):
        write(writer, 700)
    pusher.close()
    assert server.seqs == [*range(1, 3501)]


def test_lines_that_the_service_read_itself_meanwhile_are_not_sent_under_a_wrong_number(
    attempt: AttemptDirectory, server: LineServer
):
    path = attempt.spool_file(0, "events")
    writer = SpoolWriter(path)
    write(writer, 10)

    def read_the_file_itself() -> None:
        server.before_answer = lambda: None
        write(writer, 5)
        server.lines[0, "events"] = [line.decode() for line in SpoolReader(path).read()]
        write(writer, 5)

    server.before_answer = read_the_file_itself
    pusher = Pusher(attempt, range(NUM_RANKS))
    pusher.start()
    pusher.close()
    assert server.seqs == [*range(1, 21)]


def test_long_lines_are_sent_in_bodies_that_the_service_takes(attempt: AttemptDirectory, server: LineServer):
    writer = SpoolWriter(attempt.spool_file(0, "events"))
    for number in range(300):
        # Quotes take two bytes in JSON, and four once the line is a text of the body.
        writer.write(EventReport(name="n", message=f"{number} {chr(34) * 40_000}"))
    pusher = Pusher(attempt, range(NUM_RANKS))
    pusher.start()
    pusher.close()
    wait_until(lambda: server.seqs == [*range(1, 301)])
    assert server.largest_body_bytes <= BodyLimits().max_ingest_bytes


@pytest.mark.parametrize("num_lines_before", [0, 3])
def test_pushing_ends_calmly_once_the_service_has_closed_the_reports(
    attempt: AttemptDirectory, server: LineServer, caplog: pytest.LogCaptureFixture, num_lines_before: int
):
    caplog.set_level(logging.INFO)
    writer = SpoolWriter(attempt.spool_file(0, "events"))
    pusher = Pusher(attempt, range(NUM_RANKS))
    write(writer, num_lines_before)
    if num_lines_before == 0:
        server.fault = 410
    pusher.start()
    if num_lines_before:
        wait_until(lambda: len(server.seqs) == num_lines_before)
        server.fault = 410
    write(writer, 2)
    wait_until(lambda: not pusher._thread.is_alive())
    num_requests = server.num_requests
    write(writer, 2)
    pusher.close()
    assert server.num_requests == num_requests
    assert [record.levelname for record in caplog.records if "reports" in record.message] == ["INFO"]
    assert len(SpoolReader(attempt.spool_file(0, "events")).read()) == num_lines_before + 4
