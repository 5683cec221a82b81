"""Clients that leave before they are answered: their calls are dropped, or stopped."""

import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from service.reports.service import ReportService
from tests.patience import wait_until
from tests.service.api import Api
from tests.service.databases import on_both_databases

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n"
"""Statement without an end."""
NUM_READERS = 6


class Readings:
    """Readings of curves, each of which has a statement without an end."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.num_ended = 0

    def read(self, service: ReportService, *_: Any) -> str:
        self.num_begun += 1
        try:
            with service._database.read() as session:
                session.connection().exec_driver_sql(ENDLESS)
        finally:
            self.num_ended += 1
        return "{}"


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    readings = Readings()
    monkeypatch.setattr(ReportService, "read_metrics", lambda service, *_: readings.read(service))
    return readings


def ask(api: Api, path: str) -> socket.socket:
    """Send a request, and return its connection."""
    address = urlsplit(api.url)
    connection = socket.create_connection((address.hostname, address.port))
    key = api.viewer.headers["authorization"]
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: {key}\r\n\r\n".encode())
    return connection


@on_both_databases
def test_curves_of_clients_that_have_left_are_stopped_and_those_that_wait_never_begin(
    api: Api, readings: Readings
) -> None:
    job_id = api.submit()["id"]
    connections = [ask(api, f"/v1/jobs/{job_id}/metrics") for _ in range(NUM_READERS)]
    wait_until(lambda: readings.num_begun)
    for connection in connections:
        connection.close()
    wait_until(lambda: readings.num_ended == readings.num_begun)
    assert api.viewer.get(f"/v1/jobs/{job_id}/logs").status_code == 200
    # The thread of curves is free again.
    num_begun = readings.num_begun
    last = ask(api, f"/v1/jobs/{job_id}/metrics")
    wait_until(lambda: readings.num_begun > num_begun)
    last.close()
    wait_until(lambda: readings.num_ended == readings.num_begun)


@on_both_databases
def test_a_log_does_not_wait_for_curves(api: Api, readings: Readings) -> None:
    job_id = api.submit()["id"]
    connections = [ask(api, f"/v1/jobs/{job_id}/metrics") for _ in range(NUM_READERS)]
    wait_until(lambda: readings.num_begun)
    assert api.viewer.get(f"/v1/jobs/{job_id}/logs").status_code == 200
    for connection in connections:
        connection.close()
    wait_until(lambda: readings.num_ended == readings.num_begun)


@on_both_databases
def test_an_answered_request_leaves_its_connection_of_the_database_usable(api: Api) -> None:
    job_id = api.submit()["id"]
    for _ in range(30):
        assert api.viewer.get(f"/v1/jobs/{job_id}/metrics").status_code == 200
