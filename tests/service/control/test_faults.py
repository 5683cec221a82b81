"""A database whose disk is full, and one that refuses writes for a while."""

import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event, text

from dlrm.record import EventReport, RunDirectory, SpoolWriter
from service.control.round_errors import Faults
from service.observability.logs import configure_logging
from service.observability.telemetry import Telemetry
from tests.patience import wait_until
from tests.service.api import Api, make_document
from tests.service.processes import is_running


def fill_database(api: Api) -> Callable[[], None]:
    """Let the database store nothing more, as on a full disk. Return a function that frees space again."""
    if api.services.database.engine.dialect.name == "postgresql":
        return refuse(api, "jobs", "events", when="BEFORE INSERT OR UPDATE", sqlstate="53100")
    return limit_pages_of_sqlite(api)


def limit_pages_of_sqlite(api: Api) -> Callable[[], None]:
    database = api.services.database

    def limit_pages(connection: sqlite3.Connection, *_: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("PRAGMA max_page_count = 1")

    with closing(sqlite3.connect(api.services.settings.state_directory / "service.sqlite3")) as connection:
        # SQLite would first use the pages that migrations have freed.
        connection.execute("VACUUM")
    event.listen(database.engine, "connect", limit_pages)
    # Open connections have no limit yet.
    database.close()

    def free_space() -> None:
        event.remove(database.engine, "connect", limit_pages)
        database.close()

    return free_space


def refuse(api: Api, *tables: str, when: str, sqlstate: str = "P0001") -> Callable[[], None]:
    """Let the database refuse changes of `tables`. Return a function that ends this.

    sqlstate: code of the error, on PostgreSQL.
    """
    is_postgresql = api.services.database.engine.dialect.name == "postgresql"
    body = f"RAISE EXCEPTION 'disk is full' USING ERRCODE = '{sqlstate}'"
    function = f"CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN {body}; END $$ LANGUAGE plpgsql"
    action = (
        "FOR EACH ROW EXECUTE FUNCTION refuse()" if is_postgresql else "BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    )
    execute(api, *([function] if is_postgresql else []))
    execute(api, *(f"CREATE TRIGGER refuse_{table} {when} ON {table} {action}" for table in tables))

    def accept() -> None:
        on_table = " ON {}" if is_postgresql else ""
        execute(api, *(f"DROP TRIGGER refuse_{table}{on_table.format(table)}" for table in tables))

    return accept


def execute(api: Api, *statements: str) -> None:
    with api.services.database.write() as session:
        for statement in statements:
            session.execute(text(statement))


def test_a_request_that_finds_no_room_says_so_and_where(api: Api) -> None:
    free_space = fill_database(api)
    document = make_document(labels={f"label-{number}": "x" * 60 for number in range(32)})
    response = api.submitter.post("/v1/jobs", json=document)
    assert (response.status_code, response.json()["type"]) == (507, "urn:dlrm:problem:storage-full"), response.text
    assert str(api.services.settings.state_directory) in response.json()["detail"]
    assert api.viewer.get("/v1/jobs").json()["items"] == []
    free_space()
    assert api.submitter.post("/v1/jobs", json=document).status_code == 201


def test_a_service_whose_rounds_fail_is_not_ready_until_they_do_not(live_api: Api) -> None:
    job = live_api.wait_for(live_api.submit()["id"], "RUNNING")
    free_space = fill_database(live_api)
    spool = RunDirectory(Path(job["run_directory"])).attempt(1).spool_file(0, "events")
    spool.parent.mkdir(parents=True, exist_ok=True)
    SpoolWriter(spool).write(EventReport(name="long", message="x" * 100_000))
    wait_until(lambda: live_api.anonymous.get("/readyz").status_code == 503)
    assert live_api.anonymous.get("/readyz").json()["type"] == "urn:dlrm:problem:not-ready"
    wait_until(lambda: "disk is full" in (live_api.services.control.faults.last_round_error or ""))
    assert live_api.anonymous.get("/healthz").status_code == 200
    free_space()
    wait_until(lambda: live_api.anonymous.get("/readyz").status_code == 200)


def test_an_end_that_the_database_could_not_take_is_booked_as_it_was(api: Api) -> None:
    control = api.services.control
    jobs = [api.submit(behaviour=behaviour, max_restarts=0) for behaviour in ("succeed", "crash")]
    control.run_once()
    for job in jobs:
        record = Path(job["run_directory"]) / "attempt-1/process.json"
        pid = json.loads(record.read_text())["pid"]
        wait_until(lambda pid=pid: not is_running(pid))
    accept = refuse(api, "attempts", when="BEFORE UPDATE OF finished_at")
    for number in range(1, 3):
        control.run_once()
        assert f"dlrm_control_errors_total {2.0 * number}" in api.services.telemetry.render().decode()
    accept()
    control.run_once()
    succeeded, crashed = (api.viewer.get(f"/v1/jobs/{job['id']}").json() for job in jobs)
    assert (succeeded["state"], succeeded["num_attempts"]) == ("SUCCEEDED", 1)
    assert (crashed["state"], crashed["num_attempts"]) == ("FAILED", 1)
    assert "with exit code 3" in crashed["message"]


def find_tracebacks(log: pytest.LogCaptureFixture) -> list[bool]:
    """Return for every log record of the control loop whether it has a traceback."""
    events = [record.msg for record in log.records if isinstance(record.msg, dict)]
    return ["exc_info" in event for event in events if event["event"] == "control_failed"]


def test_a_fault_that_repeats_is_told_in_full_once_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    configure_logging("console")
    logging.getLogger().addHandler(caplog.handler)
    faults = Faults(Telemetry())

    def log_full_disk(values: str) -> None:
        try:
            raise OSError(28, f"No space left\n{values}")
        except OSError as error:
            faults.record("control_failed", error, what="job_0")

    with caplog.at_level(logging.ERROR):
        for number in range(3):
            log_full_disk(str(number))
            log_full_disk(str(number))
            faults.end_round()
        assert find_tracebacks(caplog) == [True, False, False, False, False, False]
        assert faults.last_round_error == "OSError: [Errno 28] No space left"
        faults.end_round()
        assert faults.last_round_error is None
        log_full_disk("again")
    assert find_tracebacks(caplog)[-1]


def test_a_fault_of_one_job_does_not_make_the_round_fail() -> None:
    faults = Faults(Telemetry())
    faults.record("control_failed", KeyError("deadline_seconds"), what="job_0")
    faults.end_round()
    assert faults.last_round_error is None
    faults.record("control_failed", KeyError("deadline_seconds"), what="schedule", concerns_all=True)
    faults.end_round()
    assert faults.last_round_error == "KeyError: 'deadline_seconds'"
