"""Deletion of jobs that have ended: hidden at once, then their files removed, then their rows."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import text

import service.jobs.deletion
from dlrm.config import ConfigError, parse_job
from dlrm.record import RunDirectory
from service.access.principal import Role
from service.ids import new_id
from service.jobs.deletion import DeletionService
from service.jobs.service import Submission
from service.reports.repository import ReportRepository
from service.settings import Settings
from service.store.pace import Pace
from service.store.removal import RemovalRepository
from service.store.run_facts import RunFacts
from tests.patience import wait_until
from tests.service.api import Api, make_document
from tests.service.control.rounds import USER
from tests.service.databases import on_both_databases, on_sqlite
from tests.service.jobs.test_checkpoints_api import save_checkpoint
from tests.service.jobs.test_jobs_api import check_problem
from tests.service.jobs.test_warm_start import add_warm_start, write_model
from tests.service.reports.attempts import begin_next_attempt
from tests.service.reports.steps import make_evaluation, make_step

TABLES = (
    *("jobs", "job_labels", "idempotency_keys", "attempts", "events", "stream_positions"),
    *("steps", "evaluations", "step_rollups"),
)
KILLED_FILES = {service.jobs.deletion.__file__}


def end_job(api: Api, **changes: Any) -> dict[str, Any]:
    """Make a job that has ended, with an attempt, reports and files."""
    job = api.submitter.post("/v1/jobs", json=make_document(**changes), headers={"Idempotency-Key": new_id("key")})
    job_id = job.json()["id"]
    attempt_id = begin_next_attempt(api, job_id).id
    with api.services.database.write() as session:
        session.execute(text("UPDATE jobs SET state = 'SUCCEEDED' WHERE id = :id"), {"id": job_id})
        session.execute(
            text("INSERT INTO stream_positions VALUES (:attempt, 0, 'metrics', 3)"), {"attempt": attempt_id}
        )
        reports = ReportRepository(session)
        reports.add_steps(job_id, 1, [make_step(number) for number in range(1, 4)])
        reports.add_evaluations(job_id, 1, [make_evaluation(3)])
    save_checkpoint(job.json(), 5, num_bytes=10)
    write_model(Path(job.json()["run_directory"], "model"))
    return api.viewer.get(f"/v1/jobs/{job_id}").json()


def delete(api: Api, job: dict[str, Any]) -> None:
    response = api.submitter.delete(f"/v1/jobs/{job['id']}")
    assert response.status_code == 202, response.text


def count_rows(api: Api) -> dict[str, int]:
    with api.services.database.read() as session:
        return {table: session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() for table in TABLES}


def is_shown(api: Api, job: dict[str, Any]) -> bool:
    """Whether the job can be seen; it must be seen in every way or in none."""
    listed = job["id"] in {item["id"] for item in api.viewer.get("/v1/jobs").json()["items"]}
    paths = ("", "/events", "/attempts", "/checkpoints", "/metrics", "/logs")
    statuses = {api.viewer.get(f"/v1/jobs/{job['id']}{path}").status_code for path in paths}
    assert statuses == {200 if listed else 404}
    return listed


def make_deletions(api: Api, **settings: float) -> DeletionService:
    """Make the part of the service that deletes, with other limits."""
    return DeletionService(
        api.services.database,
        api.services.settings.runs_directory,
        api.services.audit,
        RunFacts(api.services.database, api.services.launchers),
        lambda: None,
        **settings,
    )


def make_pace(max_looks: int = 10**9, num_rows: int = 1000) -> Pace:
    """Make a pace that is over after so many looks at whether it is, and that does not pause."""
    looks = count(1)
    pace = Pace(lambda: next(looks) > max_looks, lambda _: None)
    pace.num_rows = num_rows
    return pace


@on_both_databases
def test_a_deleted_job_is_hidden_at_once_and_its_files_and_rows_go(api: Api) -> None:
    job, other = end_job(api), end_job(api)
    num_rows = count_rows(api)
    delete(api, job)
    assert not is_shown(api, job)
    assert Path(job["run_directory"]).exists()
    api.services.deletions.finish_deletions(make_pace())
    assert not Path(job["run_directory"]).exists()
    assert count_rows(api) == {table: number // 2 for table, number in num_rows.items()}
    assert is_shown(api, other)
    assert Path(other["run_directory"], "model", "config.json").exists()
    check_problem(api.submitter.delete(f"/v1/jobs/{job['id']}"), 404, "not-found")


def test_a_job_that_is_being_deleted_does_not_exist_for_any_verb(api: Api) -> None:
    job = end_job(api)
    delete(api, job)
    for verb in ("cancel", "pause", "resume", "restart"):
        check_problem(api.admin.post(f"/v1/jobs/{job['id']}/{verb}"), 404, "not-found")
    check_problem(api.admin.delete(f"/v1/jobs/{job['id']}"), 404, "not-found")
    document = add_warm_start(make_document(), job["id"])
    problem = check_problem(api.admin.post("/v1/jobs", json=document), 422, "invalid-job")
    assert problem["errors"][0]["message"] == f"'{job['id']}' is not a job of this service"


def test_a_job_that_has_not_ended_is_not_deleted(api: Api) -> None:
    job = api.submit()
    for state in ("QUEUED", "STARTING", "RUNNING", "PAUSED", "RECOVERING", "CANCELLING"):
        with api.services.database.write() as session:
            session.execute(text(f"UPDATE jobs SET state = '{state}'"))
        problem = check_problem(api.submitter.delete(f"/v1/jobs/{job['id']}"), 409, "conflict")
        assert f"{job['id']} is {state}: only a job that has ended can be deleted; " in problem["detail"]
        assert problem["state"] == state
    assert is_shown(api, job)


class Killed(BaseException):
    """End of the process, as far as the code that runs can tell."""


@contextmanager
def kill_at_line(number: int) -> Generator[list[int]]:
    """Raise Killed before the line of the deletion that is run as number `number`; yield the lines that were run."""
    lines: list[int] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in KILLED_FILES:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == number:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    except Killed:
        pass
    finally:
        sys.settrace(before)


@pytest.mark.slow
def test_a_deletion_that_is_killed_at_any_line_shows_nothing_half_and_is_finished_later(api: Api) -> None:
    number, was_killed = 0, True
    while was_killed:
        number += 1
        job = end_job(api)
        delete(api, job)
        with kill_at_line(number) as lines:
            make_deletions(api).finish_deletions(make_pace(num_rows=2))
        was_killed = len(lines) == number
        assert not is_shown(api, job)
        make_deletions(api).finish_deletions(make_pace())
        assert not Path(job["run_directory"]).exists()
        assert set(count_rows(api).values()) == {0}
    assert number > 20


@on_both_databases
def test_a_deletion_that_is_interrupted_is_continued_later(api: Api) -> None:
    jobs = [end_job(api) for _ in range(2)]
    for job in jobs:
        delete(api, job)
    num_left, num_calls = [count_rows(api)], 0
    while num_left[-1]["jobs"]:
        num_calls += 1
        make_deletions(api).finish_deletions(make_pace(max_looks=3 + num_calls, num_rows=1))
        num_left.append(count_rows(api))
    assert num_calls > len(jobs)
    assert all(later[table] <= row[table] for row, later in pairwise(num_left) for table in TABLES)


@on_both_databases
def test_no_transaction_removes_more_rows_than_the_pace_allows(api: Api) -> None:
    job = end_job(api)
    with api.services.database.write() as session:
        before = session.execute(text("SELECT count(*) FROM steps")).scalar_one()
        assert RemovalRepository(session).remove_some([job["id"]], 2) == []
        assert session.execute(text("SELECT count(*) FROM steps")).scalar_one() == before - 2


def test_the_upkeep_of_a_running_service_removes_what_was_deleted(live_api: Api) -> None:
    job = live_api.wait_for(live_api.submit(labels={"behaviour": "succeed"})["id"], "SUCCEEDED")
    delete(live_api, job)
    wait_until(lambda: count_rows(live_api)["jobs"] == 0)
    assert not Path(job["run_directory"]).exists()


@on_sqlite
def test_links_are_removed_and_not_followed(api: Api, tmp_path: Path) -> None:
    job = end_job(api)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    run = Path(job["run_directory"])
    (run / "to-directory").symlink_to(outside)
    (run / "to-file").symlink_to(outside / "kept")
    (run / "broken").symlink_to(run / "nowhere")
    (run / "checkpoints" / "deep").symlink_to(outside)
    delete(api, job)
    api.services.deletions.finish_deletions(make_pace())
    assert not run.exists()
    assert (outside / "kept").read_text() == "kept"
    assert count_rows(api)["jobs"] == 0


def put_link(run: Path, outside: Path) -> None:
    shutil.move(run, outside)
    run.symlink_to(outside)


def put_file(run: Path, outside: Path) -> None:
    shutil.move(run, outside)
    run.write_text("no directory")


@on_sqlite
@pytest.mark.parametrize("put", [put_link, put_file])
@pytest.mark.parametrize("is_marked_before", [False, True])
def test_what_is_not_the_directory_of_the_run_is_never_removed(
    api: Api, tmp_path: Path, put: Any, *, is_marked_before: bool
) -> None:
    job, other, outside = end_job(api), end_job(api), tmp_path / "outside"
    run = Path(job["run_directory"])
    if is_marked_before:
        delete(api, job)
    put(run, outside)
    if is_marked_before:
        delete(api, other)
        api.services.deletions.finish_deletions(make_pace())
        assert not Path(other["run_directory"]).exists()
        assert count_rows(api)["jobs"] == 1
    else:
        problem = check_problem(api.submitter.delete(f"/v1/jobs/{job['id']}"), 409, "conflict")
        assert f"{run} is no directory" in problem["detail"]
    assert (outside / "model" / "config.json").exists()
    assert os.path.lexists(run)


@on_sqlite
@pytest.mark.parametrize("place", ["elsewhere", "runs/other", "runs/nested/{id}", "runs/../{id}", "runs"])
def test_a_run_directory_elsewhere_is_not_removed_and_it_is_said_why(api: Api, tmp_path: Path, place: str) -> None:
    job = end_job(api)
    directory = tmp_path / "state" / place.format(id=job["id"])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "kept").write_text("kept")
    with api.services.database.write() as session:
        session.execute(text("UPDATE jobs SET run_directory = :path"), {"path": str(directory)})
    problem = check_problem(api.submitter.delete(f"/v1/jobs/{job['id']}"), 409, "conflict")
    assert f"{directory} is not a directory of {api.services.settings.runs_directory}" in problem["detail"]
    with api.services.database.write() as session:
        session.execute(text("UPDATE jobs SET deleting_at = '2026-01-01 00:00:00'"))
    api.services.deletions.finish_deletions(make_pace())
    assert (directory / "kept").read_text() == "kept"
    assert count_rows(api)["jobs"] == 1


@contextmanager
def protect(file: Path) -> Generator[None]:
    """Keep a file from being removed, also by root."""
    if os.geteuid():
        file.parent.chmod(0o500)
        yield
        file.parent.chmod(0o700)
        return
    if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", file], check=False).returncode:
        pytest.skip("no file of this file system can be protected from root")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", file], check=True)


def test_a_file_that_cannot_be_removed_is_tried_again_while_others_go_on(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, fine = end_job(api), end_job(api)
    delete(api, stuck)
    delete(api, fine)
    run = RunDirectory(Path(stuck["run_directory"]))
    deletions = make_deletions(api, retry_seconds=0.0)
    with protect(run.model / "config.json"):
        deletions.finish_deletions(make_pace())
        assert (run.model / "config.json").exists()
        assert not run.checkpoints.exists()
        assert not Path(fine["run_directory"]).exists()
        assert not is_shown(api, stuck)
        assert count_rows(api)["jobs"] == 1
    (line,) = [record.getMessage() for record in caplog.records if "deletion_failed" in record.getMessage()]
    assert stuck["id"] in line
    assert "config.json" in line
    deletions.finish_deletions(make_pace())
    assert not run.path.exists()
    assert count_rows(api)["jobs"] == 0


def test_after_an_error_a_job_is_left_alone_for_a_while(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    job = end_job(api)
    delete(api, job)
    put_file(Path(job["run_directory"]), Path(job["run_directory"] + "-moved"))
    for _ in range(3):
        api.services.deletions.finish_deletions(make_pace())
    assert sum("deletion_failed" in record.getMessage() for record in caplog.records) == 1


@on_sqlite
def test_files_that_are_gone_already_are_no_error(api: Api) -> None:
    job = end_job(api)
    shutil.rmtree(job["run_directory"])
    delete(api, job)
    api.services.deletions.finish_deletions(make_pace())
    assert count_rows(api)["jobs"] == 0


@on_both_databases
def test_a_model_that_a_job_still_starts_from_is_not_deleted(api: Api) -> None:
    source = end_job(api)
    document = add_warm_start(make_document(), source["id"])
    heir = api.submitter.post("/v1/jobs", json=document).json()
    problem = check_problem(api.submitter.delete(f"/v1/jobs/{source['id']}"), 409, "conflict")
    assert problem["detail"] == (
        f"{heir['id']}, which has not ended, starts from the model of {source['id']}: wait for its end, or cancel it"
    )
    api.submitter.post(f"/v1/jobs/{heir['id']}/cancel")
    delete(api, source)
    api.services.deletions.finish_deletions(make_pace())
    shown = api.viewer.get(f"/v1/jobs/{heir['id']}").json()
    assert shown["spec"]["run"]["warm_start"]["from"] == source["id"]
    problem = check_problem(api.submitter.post(f"/v1/jobs/{heir['id']}/restart"), 422, "invalid-job")
    assert problem["errors"][0]["message"] == f"'{source['id']}' is not a job of this service"


@on_both_databases
def test_a_source_that_is_deleted_during_a_submission_is_refused(api: Api) -> None:
    source = end_job(api)
    submission = Submission(add_warm_start(make_document(), source["id"]), USER)
    spec = parse_job(submission.document)
    job, resolved = api.services.jobs._make_job(spec, submission)
    delete(api, source)
    with pytest.raises(ConfigError, match=f"'{source['id']}' is not a job of this service"):
        api.services.jobs._add(job, resolved, spec, submission)


@on_both_databases
def test_of_a_deletion_and_a_submission_at_the_same_time_one_is_refused(api: Api) -> None:
    for _ in range(8):
        source = end_job(api)
        document = add_warm_start(make_document(), source["id"])
        with ThreadPoolExecutor(2) as pool:
            submitted = pool.submit(api.submitter.post, "/v1/jobs", json=document)
            deleted = pool.submit(api.admin.delete, f"/v1/jobs/{source['id']}")
        statuses = (submitted.result().status_code, deleted.result().status_code)
        assert statuses in {(201, 409), (422, 202)}


@on_sqlite
def test_a_job_of_another_owner_that_starts_from_a_model_is_not_named(api: Api) -> None:
    source = end_job(api)
    with api.make_client(api.services.keys.create("ops", Role.ADMIN, owner="ops").key) as ops:
        heir = ops.post("/v1/jobs", json=add_warm_start(make_document(), source["id"])).json()
    problem = check_problem(api.submitter.delete(f"/v1/jobs/{source['id']}"), 409, "conflict")
    assert problem["detail"].startswith(
        f"a job of another owner, which has not ended, starts from the model of {source['id']}"
    )
    assert heir["id"] not in str(problem)


def test_the_idempotency_key_of_a_deleted_job_creates_a_new_one(api: Api) -> None:
    def submit() -> Any:
        return api.submitter.post("/v1/jobs", json=make_document(), headers={"Idempotency-Key": "k"})

    first = submit().json()
    api.submitter.post(f"/v1/jobs/{first['id']}/cancel")
    delete(api, first)
    again = submit()
    assert again.status_code == 201
    assert again.json()["id"] != first["id"]


@on_sqlite
def test_the_directory_of_runs_may_be_a_link_itself(settings: Settings, api: Api, tmp_path: Path) -> None:
    job = end_job(api)
    shutil.move(settings.runs_directory, tmp_path / "large-disk")
    settings.runs_directory.symlink_to(tmp_path / "large-disk")
    delete(api, job)
    api.services.deletions.finish_deletions(make_pace())
    assert list((tmp_path / "large-disk").iterdir()) == []
