"""The log of requests: what it tells, and that nobody can write a line of his own into it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from service.observability.logs import configure_logging
from tests.patience import wait_until
from tests.service.api import make_client, make_environment, make_settings
from tests.service.raw import connect, make_head
from tests.service.service_process import ServiceProcess

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    directory = tmp_path_factory.mktemp("service")
    settings = make_settings(directory, f"sqlite:///{directory}/state/service.sqlite3")
    environment = make_environment(settings.model_copy(update={"log_format": "json"}))
    with ServiceProcess(directory, environment) as process:
        yield process


@dataclass
class Served:
    """A service, and the length of its log when a test began."""

    url: str
    admin_key: str
    process: ServiceProcess
    start: int

    @property
    def log(self) -> str:
        """Log since the test began."""
        return self.process.log[self.start :]


@pytest.fixture
def served(process: ServiceProcess) -> Served:
    return Served(process.url, process.admin_key, process, len(process.log))


def read_requests(served: Served, expected: int) -> list[dict[str, Any]]:
    """Read the lines of requests, once there are as many as expected: a request is logged after its answer is sent."""

    def read() -> list[dict[str, Any]]:
        whole = served.log.rpartition("\n")[0]
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == "request"]

    return wait_until(lambda: lines if len(lines := read()) >= expected else [])


def test_a_request_is_logged_with_who_sent_it_and_what_it_got(served: Served) -> None:
    with make_client(served.url, served.admin_key) as client:
        key = {"name": "dashboards", "role": "viewer"}
        made = client.post("/v1/keys", json=key, headers={"X-Request-ID": "one"})
        client.get("/v1/jobs/job_0", headers={"X-Request-ID": "two"})
        client.request("INVENT", "/v1/jobs", headers={"X-Request-ID": "three"})
    lines = {line["request_id"]: line for line in read_requests(served, 3)}
    assert lines["one"]["seconds"] > 0
    told = ("method", "route", "status", "bytes", "actor")
    assert [lines["one"][name] for name in told] == ["POST", "/v1/keys", 201, len(made.content), "admin"]
    assert [lines["two"][name] for name in told[:3]] == ["GET", "/v1/jobs/{job_id}", 404]
    assert [lines["three"][name] for name in told[:3]] == ["other", "/v1/jobs", 405]


def test_requests_that_come_all_the_time_are_logged_only_where_they_are_refused(served: Served) -> None:
    with make_client(served.url, served.admin_key) as client:
        assert client.get("/v1/jobs").status_code == 200
    with make_client(served.url) as client:
        for path in ("/healthz", "/readyz", "/static/0/style/base.css", "/v1/ingest/att_0", "/static/0/none"):
            client.get(path)
    assert [line["path"] for line in read_requests(served, 2)] == ["/v1/ingest/att_0", "/static/0/none"]


@pytest.mark.slow
def test_nobody_fills_the_log_with_refusals(served: Served) -> None:
    with make_client(served.url) as client:
        for _ in range(300):
            client.get("/v1/jobs")
    with make_client(served.url, served.admin_key) as client:
        client.get("/v1/jobs/job_0", headers={"X-Request-ID": "last"})
    wait_until(lambda: read_requests(served, 1)[-1]["request_id"] == "last")
    assert 100 < len(read_requests(served, 1)) < 250


def test_a_path_is_logged_in_one_line_and_cut(served: Served) -> None:
    forged = "/x%0a%7b%22event%22%3a%22forged%22%7d%0d%1b[31m%e2%80%a8" + "y" * 500
    with connect(served.url) as connection:
        connection.send(make_head("GET", forged, connection="close"))
        assert connection.read_answer().status == 404
    (line,) = read_requests(served, 1)
    assert line["path"].startswith('/x\n{"event":"forged"}')
    assert len(line["path"]) == 200
    events = [json.loads(text)["event"] for text in served.log.splitlines() if text[:1] == "{"]
    assert "forged" not in events


def test_no_text_of_a_request_begins_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("console")
    forged = "x\n2026-01-01T00:00:00.000000Z [info     ] forged\r\x1b[2J\x85\u2028\x00"
    log = structlog.get_logger("test")
    log.info("request", path=forged, nested={"a": forged}, listed=[forged])
    log.error(forged)
    try:
        raise ValueError(forged)
    except ValueError as error:
        log.error("failed", exc_info=error)
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if re.match(STAMP, line)]) == 3
    assert all(re.match(rf"{STAMP}|    ", line) for line in lines)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", "".join(lines))
