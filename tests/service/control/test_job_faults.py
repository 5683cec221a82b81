"""Faults of one job: they end that job, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event
from sqlalchemy.exc import DataError

from dlrm.record import EventReport, RunDirectory, SpoolWriter
from service.control.reconciler import Reconciler
from service.launchers.processes import find_marked
from service.store.models import Job
from tests.patience import wait_until
from tests.service.api import Api
from tests.service.databases import on_both_databases


def read_job(api: Api, job_id: str) -> dict[str, Any]:
    return api.viewer.get(f"/v1/jobs/{job_id}").json()


def run_until_ended(api: Api, job_id: str) -> dict[str, Any]:
    def find() -> dict[str, Any] | None:
        api.services.control.run_once()
        job = read_job(api, job_id)
        return job if job["state"] in ("SUCCEEDED", "FAILED", "CANCELLED") else None

    return wait_until(find)


def run_rounds(api: Api, number: int) -> None:
    for _ in range(number):
        api.services.control.run_once()
        assert api.services.control.faults.last_round_error is None


def count_free_cores(api: Api) -> int:
    return api.viewer.get("/v1/capacity").json()["launchers"]["local"]["num_cores_free"]


def fail_for(job_id: str, error: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the service fail whenever it looks after this job."""
    reconcile = Reconciler.reconcile

    def fail(reconciler: Reconciler, job: Job) -> None:
        if job.id == job_id:
            raise error()
        reconcile(reconciler, job)

    monkeypatch.setattr(Reconciler, "reconcile", fail)


@on_both_databases
def test_an_outcome_with_numbers_that_are_not_finite_ends_its_job(api: Api) -> None:
    job = run_until_ended(api, api.submit(behaviour="leave_strange_numbers")["id"])
    assert (job["state"], job["reason"]) == ("SUCCEEDED", "completed")
    assert job["metrics"] == {
        "auc": None,
        "log_loss": None,
        "calibration": None,
        "lightgbm_log_loss": 0.5,
        "best_step": 1.5,
    }
    assert api.services.control.faults.last_round_error is None


@on_both_databases
def test_what_no_database_stores_in_the_events_of_a_run_is_replaced(api: Api) -> None:
    job = api.submit()
    api.services.control.run_once()
    spool = RunDirectory(Path(read_job(api, job["id"])["run_directory"])).attempt(1).spool_file(0, "events")
    spool.parent.mkdir(parents=True, exist_ok=True)
    writer = SpoolWriter(spool)
    writer.write(EventReport(name="a\0", message="b\0", details={"c\0": ["\0", float("nan"), {"d": float("inf")}]}))
    text = (
        '{"seq":2,"time":1e9,"kind":"event","name":"raw","message":"","details":{"x":[NaN,{"y":-Infinity,"z":1e999}]}}'
    )
    with spool.open("a") as file:
        file.write(f"{text}\n")
    run_rounds(api, 2)
    events = api.viewer.get(f"/v1/jobs/{job['id']}/events").json()["items"]
    strange, raw = (event for event in events if event["kind"] == "report")
    assert (strange["name"], strange["message"]) == ("a�", "b�")
    assert strange["details"] == {"c�": ["�", None, {"d": None}]}
    assert raw["details"] == {"x": [None, {"y": None, "z": None}]}


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_job_that_cannot_be_looked_after_ends_and_gives_its_cores_back(
    api: Api, monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    broken, fine = (api.submit() for _ in range(2))
    api.services.control.run_once()
    run_directory = Path(read_job(api, broken["id"])["run_directory"])
    num_free = count_free_cores(api)
    if is_cancelled:
        api.submitter.post(f"/v1/jobs/{broken['id']}/cancel")
    fail_for(broken["id"], lambda: KeyError("a field that was always there"), monkeypatch)
    run_rounds(api, 2)
    assert read_job(api, broken["id"])["state"] == ("CANCELLING" if is_cancelled else "STARTING")
    job = run_until_ended(api, broken["id"])
    assert (job["state"], job["reason"]) == ("CANCELLED" if is_cancelled else "FAILED", "internal_error")
    assert "KeyError" in job["message"]
    assert "a field that was always there" in job["message"]
    assert not find_marked(run_directory / "attempt-1")
    assert count_free_cores(api) == num_free + 1
    assert api.viewer.get(f"/v1/jobs/{broken['id']}/events").json()["items"][-1]["reason"] == "internal_error"
    attempt = api.viewer.get(f"/v1/jobs/{broken['id']}/attempts").json()["items"][0]
    assert (attempt["state"], attempt["reason"]) == ("FAILED", "internal_error")
    assert read_job(api, fine["id"])["state"] in ("STARTING", "RUNNING")


def test_an_end_whose_error_cannot_be_stored_is_recorded_without_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job = api.submit()
    api.services.control.run_once()
    fail_for(job["id"], lambda: ValueError("unspeakable"), monkeypatch)

    def refuse(_: object, __: object, statement: str, parameters: object, ___: object, ____: object) -> None:
        if "unspeakable" in str(parameters):
            raise DataError(statement, {}, ValueError("refused"))

    event.listen(api.services.database.engine, "before_cursor_execute", refuse)
    ended = run_until_ended(api, job["id"])
    assert (ended["state"], ended["reason"]) == ("FAILED", "internal_error")
    assert "unspeakable" not in ended["message"]


def test_a_fault_that_may_pass_ends_no_job_soon(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job = api.submit()
    api.services.control.run_once()
    fail_for(job["id"], lambda: TimeoutError("the file server does not answer"), monkeypatch)
    run_rounds(api, 6)
    assert read_job(api, job["id"])["state"] == "STARTING"
    monkeypatch.setattr("service.control.job_faults.PASSING_SECONDS", 0.0)
    assert run_until_ended(api, job["id"])["reason"] == "internal_error"


def test_a_job_that_cannot_be_started_fails_and_the_next_one_starts(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, fine = api.submit(), api.submit()
    begin = api.services.control.scheduler._starter.begin

    def fail(job: Job) -> Any:
        if job.id == broken["id"]:
            raise KeyError("gpus")
        return begin(job)

    monkeypatch.setattr(api.services.control.scheduler._starter, "begin", fail)
    assert run_until_ended(api, broken["id"])["reason"] == "internal_error"
    assert read_job(api, fine["id"])["state"] in ("STARTING", "RUNNING")


@on_both_databases
def test_the_service_stays_ready_while_a_job_is_at_fault(live_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job = live_api.wait_for(live_api.submit()["id"], "RUNNING")
    statuses: set[int] = set()
    error = DataError("UPDATE jobs", {}, make_refusal(live_api))
    fail_for(job["id"], lambda: error, monkeypatch)

    def is_over() -> bool:
        response: httpx.Response = live_api.anonymous.get("/readyz")
        statuses.add(response.status_code)
        return read_job(live_api, job["id"])["state"] == "FAILED"

    wait_until(is_over)
    assert statuses == {200}


def make_refusal(api: Api) -> Exception:
    """Make the error with which the driver of this database says that it refuses a value."""
    if api.services.database.is_sqlite:
        import sqlite3

        return sqlite3.DataError("a value is refused")
    import psycopg

    return psycopg.errors.InvalidTextRepresentation("a value is refused")
