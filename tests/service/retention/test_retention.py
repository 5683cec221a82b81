"""Retention: what its rules choose, that they touch nothing else, and that a dry run shows the same."""

import errno
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from service.reports.repository import ReportRepository
from service.retention import service as retention_service
from service.retention.rules import RetentionRules
from service.retention.service import RetentionService
from service.schedules.models import Schedule
from service.store.metric_tables import EVALUATIONS, ROLLUPS, STEPS
from service.store.models import Job
from service.store.states import NOT_ENDED
from service.times import now
from tests.made_reports import make_evaluation, make_step
from tests.service.api import Api, make_document
from tests.service.databases import on_both_databases
from tests.service.jobs.test_deletion import make_pace
from tests.service.jobs.test_jobs_api import check_problem
from tests.service.jobs.test_warm_start import add_warm_start, write_model
from tests.service.reports.attempts import begin_next_attempt


def add_points(api: Api, job_id: str) -> None:
    """Begin an attempt of a job with six steps and an evaluation."""
    number = begin_next_attempt(api, job_id).number
    with api.services.database.write() as session:
        reports = ReportRepository(session)
        reports.add_steps(job_id, number, [make_step(step) for step in range(1, 7)])
        reports.add_evaluations(job_id, number, [make_evaluation(6)])


def add_job(api: Api, days_ago: float | None, num_bytes: int = 0, *, has_points: bool = False, **changes: Any) -> str:
    """Add a job that ended so many days ago, or that runs if None, and return its id."""
    job = api.submit(**changes)
    if has_points:
        add_points(api, job["id"])
    values: dict[str, Any] = {"state": "RUNNING", "num_attempts": 1}
    if days_ago is not None:
        values = {"state": "SUCCEEDED", "finished_at": now() - timedelta(days=days_ago)}
    with api.services.database.write() as session:
        session.execute(update(Job).where(Job.id == job["id"]).values(values))
    if num_bytes:
        directory = Path(job["run_directory"], "checkpoints")
        directory.mkdir(parents=True)
        (directory / "weights").write_bytes(bytes(num_bytes))
    return job["id"]


def make_retention(api: Api, rules: RetentionRules, point_days: float | None = None) -> RetentionService:
    services = api.services
    return RetentionService(services.database, rules, point_days, services.audit, services.facts, services.telemetry)


def apply(api: Api, rules: RetentionRules) -> None:
    """Make a round of retention, and finish the deletions that follow from it."""
    make_retention(api, rules).run(make_pace())
    api.services.deletions.finish_deletions(make_pace())


def list_ids(api: Api) -> set[str]:
    return {job["id"] for job in api.admin.get("/v1/jobs").json()["items"]}


def preview(api: Api, **rules: Any) -> dict[str, Any]:
    response = api.admin.get("/v1/retention", params=rules)
    assert response.status_code == 200, response.text
    return response.json()


def check(api: Api, gone: dict[str, str], **rules: Any) -> None:
    """Check that a dry run shows the jobs that go, by id with the reason, and that exactly these go."""
    before = list_ids(api)
    shown = preview(api, **rules)
    assert {item["id"]: item["reason"] for item in shown["items"]} == gone
    assert shown["num_jobs"] == len(gone)
    assert list_ids(api) == before
    apply(api, RetentionRules(**rules))
    assert list_ids(api) == before - set(gone)
    assert preview(api, **rules)["num_jobs"] == 0


@on_both_databases
def test_jobs_go_so_many_days_after_their_end(api: Api) -> None:
    old, _, _ = add_job(api, 31), add_job(api, 29), add_job(api, None)
    check(api, {old: "age"}, days=30)


@on_both_databases
def test_each_owner_keeps_the_jobs_that_ended_last(api: Api) -> None:
    jobs = [add_job(api, days) for days in (3, 1, 2)]
    with api.services.database.write() as session:
        other = add_job(api, 9)
        session.execute(update(Job).where(Job.id == other).values(owner="other"))
    check(api, {jobs[0]: "count"}, jobs_per_owner=2)


@on_both_databases
def test_the_jobs_that_ended_first_go_until_the_rest_is_small_enough(api: Api) -> None:
    first, second, third = add_job(api, 3, 500), add_job(api, 2, 400), add_job(api, 1, 300)
    make_retention(api, RetentionRules()).run(make_pace())
    assert preview(api, run_bytes=1000)["num_bytes"] == 500
    check(api, {first: "bytes"}, run_bytes=1000)
    check(api, {second: "bytes"}, run_bytes=699)
    check(api, {}, run_bytes=300)
    assert list_ids(api) == {third}


def test_no_rule_touches_a_job_that_has_not_ended(api: Api) -> None:
    jobs = [add_job(api, None) for _ in NOT_ENDED]
    with api.services.database.write() as session:
        for job_id, state in zip(jobs, NOT_ENDED, strict=True):
            # Even with an end, as no job without one would have.
            values = {"state": state.value, "finished_at": now() - timedelta(days=99)}
            session.execute(update(Job).where(Job.id == job_id).values(values))
    check(api, {}, days=0, jobs_per_owner=0, run_bytes=0)


def test_a_job_with_the_label_keep_stays_and_does_not_count(api: Api) -> None:
    add_job(api, 99, labels={"behaviour": "wait", "keep": "true"})
    dropped = add_job(api, 98, labels={"behaviour": "wait", "keep": "false"})
    add_job(api, 1)
    check(api, {dropped: "age"}, days=30, jobs_per_owner=1)


def test_a_model_that_a_waiting_job_starts_from_stays_until_that_has_ended(api: Api) -> None:
    source = add_job(api, 99)
    write_model(Path(api.viewer.get(f"/v1/jobs/{source}").json()["run_directory"], "model"))
    heir = api.submitter.post("/v1/jobs", json=add_warm_start(make_document(), source)).json()["id"]
    check(api, {}, days=30)
    api.submitter.post(f"/v1/jobs/{heir}/cancel")
    check(api, {source: "age"}, days=30)


def test_the_last_and_the_previous_job_of_a_schedule_stay(api: Api) -> None:
    last, previous, other = (add_job(api, 99) for _ in range(3))
    schedule = {"name": "nightly", "cron": "0 2 * * *", "document": make_document(), "previous_job_id": previous}
    schedule_id = api.submitter.post("/v1/schedules", json=schedule).json()["id"]
    with api.services.database.write() as session:
        session.execute(update(Schedule).values(last_job_id=last))
    check(api, {other: "age"}, days=30)
    api.submitter.delete(f"/v1/schedules/{schedule_id}")
    check(api, {last: "age", previous: "age"}, days=30)


@on_both_databases
def test_a_job_that_gets_an_heir_after_it_was_chosen_stays(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    source = add_job(api, 99)
    write_model(Path(api.viewer.get(f"/v1/jobs/{source}").json()["run_directory"], "model"))
    retention = make_retention(api, RetentionRules(days=1))
    hide = retention._hide_some

    def submit_heir_first(due: Any) -> int:
        response = api.submitter.post("/v1/jobs", json=add_warm_start(make_document(), source))
        assert response.status_code == 201
        return hide(due)

    monkeypatch.setattr(retention, "_hide_some", submit_heir_first)
    retention.run(make_pace())
    assert source in list_ids(api)
    assert "dlrm_retention_jobs_total 0.0" in api.services.telemetry.render().decode()


def test_a_round_hides_a_bounded_number_and_the_next_goes_on(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_service, "MAX_JOBS", 2)
    monkeypatch.setattr(retention_service, "PIECE_JOBS", 1)
    jobs = [add_job(api, days) for days in (9, 8, 7, 6, 5)]
    retention = make_retention(api, RetentionRules(days=1))
    numbers = list[int]()
    for _ in range(4):
        retention.run(make_pace())
        numbers.append(len(list_ids(api)))
    assert numbers == [3, 1, 0, 0]
    assert f"dlrm_retention_jobs_total {len(jobs)}.0" in api.services.telemetry.render().decode()


def test_without_rules_nothing_goes(api: Api) -> None:
    add_job(api, 9999, 10)
    assert preview(api)["num_jobs"] == 0
    api.services.retention.run(make_pace())
    assert len(list_ids(api)) == 1


def test_each_removal_is_in_the_audit_log(api: Api) -> None:
    job_id = add_job(api, 31, 7)
    apply(api, RetentionRules(days=30))
    (row,) = api.admin.get("/v1/audit", params={"action": "job_expired"}).json()["items"]
    assert row["target"] == job_id
    assert row["actor"] == ""
    assert row["details"]["reason"] == "age"
    assert row["details"]["num_bytes"] == 7


def test_only_an_admin_sees_what_would_go(api: Api) -> None:
    check_problem(api.submitter.get("/v1/retention"), 403, "forbidden")
    check_problem(api.admin.get("/v1/retention", params={"days": -1}), 422, "invalid-request")


def count_points(api: Api, job_id: str) -> dict[str, int]:
    tables = {"step": STEPS, "evaluation": EVALUATIONS, "bucket": ROLLUPS}
    with api.services.database.read() as session:
        return {
            kind: number
            for kind, table in tables.items()
            if (number := session.execute(select(func.count()).where(table.c.job_id == job_id)).scalar_one())
        }


@on_both_databases
def test_raw_points_go_earlier_than_their_job_and_evaluations_stay(api: Api) -> None:
    days = (("old", 31), ("new", 29), ("running", None))
    jobs = {name: add_job(api, days_ago, has_points=True) for name, days_ago in days}
    jobs["kept"] = add_job(api, 99, has_points=True, labels={"behaviour": "wait", "keep": "true"})
    make_retention(api, RetentionRules(), point_days=30).run(make_pace(num_rows=2))
    assert count_points(api, jobs.pop("old")) == {"evaluation": 1, "bucket": 1}
    assert all(count_points(api, job_id) == {"step": 6, "evaluation": 1, "bucket": 1} for job_id in jobs.values())
    assert len(list_ids(api)) == 4


def test_a_run_directory_that_cannot_be_read_holds_up_no_other_job(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, other = add_job(api, 9), add_job(api, 9)
    walk = os.fwalk

    def walk_open(path: Path, **options: Any) -> Any:
        if Path(path).name == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return walk(path, **options)

    monkeypatch.setattr("service.retention.service.os.fwalk", walk_open)
    apply(api, RetentionRules(days=1))
    assert not {closed, other} & list_ids(api)
