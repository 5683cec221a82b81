"""A PostgreSQL server that is away: at the start of the service, and while it runs."""

import logging
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from service.database import opening
from service.database.opening import open_database
from service.observability.logs import configure_logging
from tests.patience import wait_until
from tests.service.api import Api, make_document
from tests.service.databases import on_postgresql
from tests.service.postgres import IS_INSTALLED, PostgresServer, run_postgres


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    """PostgreSQL server of these tests alone, since they stop it."""
    if not IS_INSTALLED:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with run_postgres() as server:
        server.create_template()
        yield server


def count_events(log: pytest.LogCaptureFixture, name: str) -> int:
    return sum(isinstance(record.msg, dict) and record.msg["event"] == name for record in log.records)


def test_a_service_that_starts_before_its_database_waits_for_it(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "PAUSE_SECONDS", 0.02)
    configure_logging("console")
    logging.getLogger().addHandler(caplog.handler)
    name = postgres_server.create_database()
    postgres_server.stop()
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING):
        opened = pool.submit(open_database, postgres_server.make_url(name))
        wait_until(lambda: count_events(caplog, "waiting_for_database"))
        postgres_server.start()
        database = opened.result()
    with database.read() as session:
        assert session.execute(text("SELECT count(*) FROM jobs")).scalar() == 0
    database.close()
    assert count_events(caplog, "waiting_for_database") == 1


@on_postgresql
@pytest.mark.parametrize(
    "end", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGQUIT], ids=["stopped", "crashed"]
)
@pytest.mark.slow
def test_a_service_outlives_a_restart_of_its_database(
    end: signal.Signals, live_api: Api, postgres_server: PostgresServer
) -> None:
    api = live_api
    job = api.wait_for(api.submit()["id"], "RUNNING")
    postgres_server.end(end)
    for response in (
        api.viewer.get(f"/v1/jobs/{job['id']}"),
        api.submitter.post("/v1/jobs", json=make_document()),
    ):
        assert response.status_code == 503, response.text
        assert response.json()["type"] == "urn:dlrm:problem:database-unavailable"
        assert response.headers["content-type"] == "application/problem+json"
        assert 1 <= int(response.headers["retry-after"]) <= 10
        assert "Traceback" not in response.text
    assert api.anonymous.get("/healthz").status_code == 200
    assert api.anonymous.get("/readyz").json()["type"] == "urn:dlrm:problem:not-ready"
    wait_until(lambda: api.services.control.faults.last_round_error)
    assert api.services.control.is_alive
    # The port for monitoring needs no key, and shows what is not read from the database.
    metrics = api.services.telemetry.render()
    assert b"dlrm_control_last_round_failed 1.0" in metrics
    assert b"dlrm_jobs{" not in metrics
    postgres_server.start()
    wait_until(lambda: api.anonymous.get("/readyz").status_code == 200)
    assert api.viewer.get(f"/v1/jobs/{job['id']}").json()["num_attempts"] == 1
    following = api.submit(behaviour="succeed")
    assert api.wait_for(following["id"], "SUCCEEDED")["num_attempts"] == 1
    assert api.submitter.post(f"/v1/jobs/{job['id']}/cancel").status_code == 202
    assert api.wait_for(job["id"], "CANCELLED")["num_attempts"] == 1


@on_postgresql
def test_a_request_that_finds_no_free_connection_is_told_to_come_again(api: Api) -> None:
    engine = api.services.database.engine
    engine.pool._timeout = 0.1  # pyright: ignore[reportAttributeAccessIssue]
    held = [engine.connect() for _ in range(engine.pool.size() + engine.pool._max_overflow)]  # pyright: ignore[reportAttributeAccessIssue]
    response = api.viewer.get("/v1/jobs")
    assert (response.status_code, response.json()["type"]) == (503, "urn:dlrm:problem:database-unavailable")
    for connection in held:
        connection.close()
    assert api.viewer.get("/v1/jobs").status_code == 200
