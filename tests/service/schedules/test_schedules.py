"""Schedules: when their jobs are submitted, with which rows and which model, and what keeps them from it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import DataError

from service.access.principal import Role
from service.app import Services
from service.database import Database
from service.jobs.service import JobService, Submission
from service.schedules.models import Schedule
from service.store.models import Job
from service.times import now
from tests.patience import wait_until
from tests.service.api import ROWS, Api, make_document
from tests.service.databases import on_both_databases, on_sqlite
from tests.service.jobs.keys import make_key
from tests.service.jobs.test_jobs_api import check_problem
from tests.service.jobs.test_warm_start import write_model
from tests.service.keys.holders import sign_in

DAILY = "0 2 * * *"
NO_JOB = f"job_{'1' * 26}"
"""Id of a job that was removed."""


def add_schedule(api: Api, document: dict[str, Any] | None = None, **fields: Any) -> str:
    body = {"name": "nightly", "cron": DAILY, "document": document or make_document(), **fields}
    response = api.submitter.post("/v1/schedules", json=body)
    assert response.status_code == 201, response.text
    return response.json()["id"]


def make_due(database: Database, schedule_id: str, next_at: datetime | None = None) -> None:
    """Let the next time of a schedule be in the past, as after a stop of the service."""
    with database.write() as session:
        last = next_at or now() - timedelta(days=3)
        session.execute(update(Schedule).where(Schedule.id == schedule_id).values(next_at=last))


def get(api: Api, schedule_id: str) -> dict[str, Any]:
    return api.viewer.get(f"/v1/schedules/{schedule_id}").json()


def run(api: Api, schedule_id: str) -> dict[str, Any]:
    """Make a schedule due, run a round, and return the schedule."""
    assert api.submitter.post(f"/v1/schedules/{schedule_id}/run").status_code == 202
    api.services.control.run_once()
    return get(api, schedule_id)


def before_submission(monkeypatch: pytest.MonkeyPatch, act: Callable[[Submission], object]) -> None:
    """Call `act` before each job is submitted."""
    submit = JobService.submit

    def act_first(self: JobService, submission: Submission) -> Any:
        act(submission)
        return submit(self, submission)

    monkeypatch.setattr(JobService, "submit", act_first)


def list_jobs(services: Services) -> list[Job]:
    with services.database.read() as session:
        return list(session.scalars(select(Job).order_by(Job.id)))


def succeed(services: Services, job_id: str) -> None:
    with services.database.write() as session:
        session.execute(update(Job).where(Job.id == job_id).values(state="SUCCEEDED"))


@on_both_databases
def test_times_that_were_missed_are_made_up_for_by_one_job_and_its_event_says_so(api: Api) -> None:
    schedule_id = add_schedule(api, time_zone="Europe/Berlin")
    shown = get(api, schedule_id)
    next_at = datetime.fromisoformat(shown["next_at"])
    assert now() < next_at <= now() + timedelta(days=1, hours=1)
    make_due(api.services.database, schedule_id, next_at - timedelta(days=4))
    for _ in range(3):
        api.services.control.run_once()
    shown = get(api, schedule_id)
    [job] = list_jobs(api.services)
    assert shown["last_result"] == f"submitted {job.id}"
    assert datetime.fromisoformat(shown["next_at"]) > now()
    assert abs(now() - datetime.fromisoformat(shown["last_due_at"])) <= timedelta(days=1, hours=1)
    seen = api.viewer.get(f"/v1/jobs/{job.id}").json()
    assert (seen["owner"], seen["created_by"], seen["labels"]["schedule"]) == ("team", "submitter", "nightly")
    event = api.viewer.get(f"/v1/jobs/{job.id}/events").json()["items"][0]
    assert event["message"].startswith("submitted by schedule nightly, due ")
    assert "; 3 earlier times passed while the service was down, of team (key submitter)" in event["message"]


@on_both_databases
def test_a_service_that_stops_before_it_notes_a_job_submits_it_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule_id = add_schedule(api)
    make_due(api.services.database, schedule_id)
    runner = api.services.control.schedules
    update_row = "service.schedules.repository.ScheduleRepository.update"
    with monkeypatch.context() as broken:
        broken.setattr(update_row, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            api.services.control.run_once()
    [job] = list_jobs(api.services)
    assert get(api, schedule_id)["last_job_id"] is None
    succeed(api.services, job.id)
    runner.run_due()
    assert [found.id for found in list_jobs(api.services)] == [job.id]
    assert get(api, schedule_id)["last_job_id"] == job.id


def test_a_time_is_skipped_while_the_last_job_has_not_ended(api: Api) -> None:
    schedule_id = add_schedule(api)
    first = run(api, schedule_id)["last_job_id"]
    shown = run(api, schedule_id)
    assert shown["last_result"] == f"skipped: {first} is still {api.viewer.get(f'/v1/jobs/{first}').json()['state']}"
    assert shown["last_job_id"] == first
    assert len(list_jobs(api.services)) == 1


def test_retraining_continues_from_the_last_model_with_the_days_that_came_since(live_api: Api, data_root: Path) -> None:
    api = live_api

    def write_day(ago: int) -> str:
        day = f"{datetime.now(UTC) - timedelta(days=ago):%Y-%m-%d}"
        (data_root / "days" / day).mkdir(parents=True)
        (data_root / "days" / day / "rows.tsv").write_text(ROWS)
        return day

    def run_to_end() -> dict[str, Any]:
        before = get(api, schedule_id)["last_due_at"]
        assert api.submitter.post(f"/v1/schedules/{schedule_id}/run").status_code == 202
        wait_until(lambda: get(api, schedule_id)["last_due_at"] != before)
        job = api.wait_for(get(api, schedule_id)["last_job_id"], "SUCCEEDED", "FAILED")
        assert (job["state"], job["id"]) == ("SUCCEEDED", get(api, schedule_id)["last_result"].split()[-1])
        wait_until(lambda: get(api, schedule_id)["previous_job_id"] == job["id"])
        return job

    document = make_document(behaviour="succeed", data={"train": ["days/{day}/*.tsv"]})
    document["run"] = {"warm_start": {"from": "{previous_job}"}}
    schedule_id = add_schedule(api, document)
    yesterday = write_day(1)
    first = run_to_end()
    assert first["spec"]["data"]["train"] == [f"days/{yesterday}/*.tsv"]
    assert first["spec"]["run"]["warm_start"] is None
    write_model(Path(first["run_directory"]) / "model")
    # Four days later; of one of them there are no rows.
    with api.services.database.write() as session:
        session.execute(update(Schedule).values(previous_due_at=now() - timedelta(days=4)))
    came = [write_day(4), write_day(2), yesterday]
    second = run_to_end()
    assert second["spec"]["data"]["train"] == [f"days/{day}/*.tsv" for day in came]
    assert second["spec"]["run"]["warm_start"]["from"] == first["id"]
    assert api.submitter.post(f"/v1/schedules/{schedule_id}/run").status_code == 202
    wait_until(lambda: "skipped" in get(api, schedule_id)["last_result"])
    assert get(api, schedule_id)["last_result"] == f"skipped: no day has ended since {second['id']}"


def test_after_a_failed_job_its_rows_come_again(api: Api, data_root: Path) -> None:
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    (data_root / yesterday).write_text(ROWS)
    schedule_id = add_schedule(api, make_document(data={"train": ["{day}"]}))
    first = run(api, schedule_id)["last_job_id"]
    api.submitter.post(f"/v1/jobs/{first}/cancel")
    with api.services.database.write() as session:
        session.execute(update(Job).values(state="FAILED"))
    second = run(api, schedule_id)
    assert second["last_job_id"] != first
    documents = [api.viewer.get(f"/v1/jobs/{job.id}").json()["spec"] for job in list_jobs(api.services)]
    assert [document["data"]["train"] for document in documents] == [[yesterday], [yesterday]]


def test_a_job_that_cannot_be_submitted_leaves_its_reason_and_the_schedule_goes_on(api: Api) -> None:
    missing = add_schedule(api, make_document(data={"train": ["{day}.tsv"]}))
    other = add_schedule(api, make_document(data={"train": ["nowhere.tsv"]}), name="other")
    fine = add_schedule(api, name="fine")
    for schedule_id in (missing, other, fine):
        make_due(api.services.database, schedule_id)
    api.services.control.run_once()
    assert get(api, missing)["last_result"].startswith("skipped: no rows have come since the last job")
    assert get(api, other)["last_result"].startswith("refused: data.train.0: 'nowhere.tsv' is neither")
    assert get(api, fine)["last_result"].startswith("submitted job_")
    assert all(datetime.fromisoformat(get(api, one)["next_at"]) > now() for one in (missing, other, fine))
    assert api.services.control.faults.last_round_error is None


def test_a_schedule_pauses_with_the_key_that_made_it_and_another_key_resumes_it(api: Api) -> None:
    created = api.services.keys.create("mine", Role.SUBMITTER, owner="team")
    with api.make_client(created.key) as client:
        body = {"name": "nightly", "cron": DAILY, "document": make_document()}
        schedule_id = client.post("/v1/schedules", json=body).json()["id"]
    api.services.keys.revoke(created.id)
    shown = run(api, schedule_id)
    assert shown["is_paused"]
    assert shown["last_result"].startswith("paused, since its key is refused: this API key was revoked at ")
    assert list_jobs(api.services) == []
    assert api.submitter.patch(f"/v1/schedules/{schedule_id}", json={"is_paused": False}).json()["next_at"] is not None
    assert run(api, schedule_id)["last_result"].startswith("submitted")


def test_a_paused_schedule_makes_up_for_nothing_and_runs_when_it_is_asked_to(api: Api) -> None:
    schedule_id = add_schedule(api)
    paused = api.submitter.patch(f"/v1/schedules/{schedule_id}", json={"is_paused": True}).json()
    assert (paused["is_paused"], paused["next_at"]) == (True, None)
    api.services.control.run_once()
    assert list_jobs(api.services) == []
    assert run(api, schedule_id)["next_at"] is None
    assert len(list_jobs(api.services)) == 1


@on_sqlite
@pytest.mark.parametrize("is_there", [False, True], ids=["removed", "being-deleted"])
def test_a_removed_previous_job_is_done_without_and_the_result_says_so(api: Api, is_there: bool) -> None:
    previous = api.submit()["id"] if is_there else NO_JOB
    with api.services.database.write() as session:
        session.execute(update(Job).values(state="SUCCEEDED", finished_at=now(), deleting_at=now()))
    document = make_document(run={"warm_start": {"from": "{previous_job}"}})
    shown = run(api, add_schedule(api, document, previous_job_id=previous))
    job, removed = list_jobs(api.services)[-1], f"its previous job {previous} was removed"
    assert shown["last_result"] == f"submitted {job.id}; {removed}"
    assert api.viewer.get(f"/v1/jobs/{job.id}").json()["spec"]["run"]["warm_start"] is None
    assert removed in api.viewer.get(f"/v1/jobs/{job.id}/events").json()["items"][0]["message"]


@on_sqlite
def test_a_document_that_needs_its_removed_previous_job_says_how_to_name_another(api: Api) -> None:
    document = make_document(data={"train": ["from/{previous_job}.tsv"]})
    shown = run(api, add_schedule(api, document, previous_job_id=NO_JOB))
    assert shown["last_result"].startswith("refused: data.train.0: 'from/.tsv' contains a name")
    assert shown["last_result"].endswith(f"{NO_JOB} was removed: name another one as previous_job_id (PATCH)")


@on_sqlite
def test_a_schedule_without_times_pauses_and_holds_up_no_other(api: Api) -> None:
    lost, fine = add_schedule(api), add_schedule(api, name="fine")
    with api.services.database.write() as session:
        session.execute(update(Schedule).where(Schedule.id == lost).values(time_zone="Mars/Base"))
    for schedule_id in (lost, fine):
        make_due(api.services.database, schedule_id)
    api.services.control.run_once()
    assert get(api, fine)["last_result"].startswith("submitted job_")
    shown = get(api, lost)
    assert (shown["is_paused"], shown["next_at"]) == (True, None)
    assert shown["last_result"].startswith("paused, since it has no times: there is no time zone 'Mars/Base'")
    assert api.services.control.faults.last_round_error is None


@on_sqlite
def test_values_that_the_database_refuses_hold_up_no_other_schedule(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, fine = add_schedule(api), add_schedule(api, name="fine")

    def refuse(submission: Submission) -> None:
        if submission.document["labels"]["schedule"] == "nightly":
            raise DataError("INSERT", {}, ValueError("out of range"))

    before_submission(monkeypatch, refuse)
    for number, schedule_id in enumerate((bad, fine)):
        make_due(api.services.database, schedule_id, now() - timedelta(days=3 - number))
    api.services.control.run_once()
    assert get(api, bad)["last_result"].startswith("failed: DataError")
    assert get(api, fine)["last_result"].startswith("submitted job_")


@on_sqlite
@pytest.mark.parametrize("changes", [{"is_paused": True}, {"cron": "0 5 1 1 *"}], ids=["paused", "other-times"])
def test_a_change_while_a_job_is_submitted_decides_the_next_time(
    api: Api, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    schedule_id = add_schedule(api)
    make_due(api.services.database, schedule_id)
    changed: list[dict[str, Any]] = []
    path = f"/v1/schedules/{schedule_id}"
    before_submission(monkeypatch, lambda _: changed.append(api.submitter.patch(path, json=changes).json()))
    api.services.control.run_once()
    shown = get(api, schedule_id)
    assert shown["last_result"].startswith("submitted job_")
    assert [(one["is_paused"], one["next_at"]) for one in changed] == [(shown["is_paused"], shown["next_at"])]


@on_sqlite
def test_a_schedule_that_is_paused_while_others_run_is_left_out(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = add_schedule(api), add_schedule(api, name="second")
    for number, schedule_id in enumerate((first, second)):
        make_due(api.services.database, schedule_id, now() - timedelta(days=3 - number))
    path = f"/v1/schedules/{second}"
    before_submission(monkeypatch, lambda _: api.submitter.patch(path, json={"is_paused": True}))
    api.services.control.run_once()
    assert get(api, second)["last_result"] is None
    assert len(list_jobs(api.services)) == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cron": "0 2 * *"}, "cron"),
        ({"time_zone": "Mars"}, "time_zone"),
        ({"name": "a b"}, "name"),
        ({"document": {"data": {"format": "synthetic"}, "precision": "fp8"}}, "document.precision"),
        ({"document": make_document(name="{day}")}, "document.name"),
        ({"document": make_document(name="x {due}")}, "document.name"),
        ({"previous_job_id": "job_1"}, "previous_job_id"),
    ],
)
def test_what_could_never_run_is_refused_with_its_field(api: Api, changes: dict[str, Any], field: str) -> None:
    body = {"name": "nightly", "cron": DAILY, "document": make_document(), **changes}
    refused = api.submitter.post("/v1/schedules", json=body)
    assert refused.status_code == 422
    assert [error["field"] for error in refused.json()["errors"]] == [field]
    schedule_id = add_schedule(api)
    if "name" not in changes:
        assert api.submitter.patch(f"/v1/schedules/{schedule_id}", json=changes).status_code == 422


def test_a_schedule_belongs_to_its_owner_and_a_name_is_taken_once(api: Api) -> None:
    schedule_id = add_schedule(api)
    check_problem(
        api.submitter.post("/v1/schedules", json={"name": "nightly", "cron": DAILY, "document": make_document()}),
        409,
        "conflict",
    )
    with make_key(api, "other", Role.SUBMITTER) as other:
        assert other.get("/v1/schedules").json()["items"] == []
        for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/run")):
            body = "{}" if method == "PATCH" else None
            headers = {"Content-Type": "application/json"} if body else {}
            url = f"/v1/schedules/{schedule_id}{path}"
            check_problem(other.request(method, url, content=body, headers=headers), 404, "not-found")
    assert [one["id"] for one in api.viewer.get("/v1/schedules").json()["items"]] == [schedule_id]
    assert api.submitter.delete(f"/v1/schedules/{schedule_id}").status_code == 204
    rows = api.admin.get("/v1/audit", params={"target": schedule_id}).json()["items"]
    assert [row["action"] for row in rows] == ["schedule_removed", "schedule_created"]


@on_sqlite
def test_a_browser_makes_and_changes_no_schedule_since_it_would_outlive_its_session(api: Api) -> None:
    schedule_id = add_schedule(api)
    body = {"name": "other", "cron": DAILY, "document": make_document()}
    with sign_in(api, key=api.services.keys.create("mine", Role.SUBMITTER, owner="team").key) as browser:
        made = browser.post("/v1/schedules", json=body)
        changed = browser.patch(f"/v1/schedules/{schedule_id}", json={"cron": "* * * * *"})
    for refused in (made, changed):
        check_problem(refused, 403, "forbidden")
        assert "Authorization: Bearer" in refused.json()["detail"]
    assert get(api, schedule_id)["cron"] == DAILY
