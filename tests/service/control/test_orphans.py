"""Processes without a row, rows without processes, and attempts of another machine."""

import json
from pathlib import Path

import pytest
from sqlalchemy import delete

from service.app import Services, create_services
from service.jobs import actions
from service.jobs.service import EventQuery
from service.launchers.protocol import Launch
from service.settings import Settings
from service.store.models import Attempt, Job
from service.times import now
from tests.patience import wait_until
from tests.service.api import serve_api
from tests.service.control.rounds import USER, run_until, submit
from tests.service.processes import is_running


def start_job(services: Services) -> tuple[str, int]:
    """Start a job that runs until it is stopped; return its id and the process id of its attempt."""
    job_id = submit(services, "wait")
    job = run_until(services, job_id, "RUNNING")
    record = Path(job.run_directory) / "attempt-1/process.json"
    return job_id, json.loads(record.read_text())["pid"]


def list_repairs(services: Services, job_id: str) -> list[str]:
    return [
        event.message
        for event in services.jobs.list_events(job_id, USER, EventQuery(0, 100)).items
        if event.kind == "repair"
    ]


@pytest.fixture(autouse=True)
def orphans_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what has no row for an orphan at once, as the service does after some seconds."""
    monkeypatch.setattr("service.control.reconciler.ORPHAN_SECONDS", 0.0)


def run_until_ended(services: Services, pid: int) -> None:
    def has_ended() -> bool:
        services.control.run_once()
        return not is_running(pid)

    wait_until(has_ended)


def test_processes_of_an_attempt_that_has_ended_are_killed_and_the_job_tells(settings: Settings) -> None:
    services = create_services(settings)
    job_id, pid = start_job(services)
    # As after a restore of an older database.
    with services.database.write() as session:
        session.get_one(Job, job_id).state = "FAILED"
        attempt = session.query(Attempt).filter_by(job_id=job_id).one()
        attempt.state, attempt.finished_at = "FAILED", now()
    run_until_ended(services, pid)
    assert list_repairs(services, job_id) == [
        "processes were left of an attempt that has ended; they were killed",
    ]


@pytest.mark.slow
def test_processes_of_a_job_that_nobody_knows_are_killed(settings: Settings) -> None:
    services = create_services(settings)
    job_id, pid = start_job(services)
    with services.database.write() as session:
        session.execute(delete(Job).where(Job.id == job_id))
    run_until_ended(services, pid)


def test_an_orphan_that_does_not_go_is_told_once_and_holds_up_no_other(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = create_services(settings)
    jobs = [start_job(services)[0] for _ in range(3)]
    jobs.sort()
    launcher, kill = services.launchers["local"], services.launchers["local"].kill

    def kill_some(launch: Launch) -> bool:
        if launch.name.job_id == jobs[0]:
            raise OSError("the cluster refuses")
        # Processes of the second one are told to be there for ever.
        return kill(launch) and launch.name.job_id != jobs[1]

    launches = [launch for launch in launcher.list() if launch.name.job_id in jobs]
    monkeypatch.setattr(launcher, "list", lambda: launches)
    monkeypatch.setattr(launcher, "kill", kill_some)
    with services.database.write() as session:
        for attempt in session.query(Attempt):
            session.get_one(Job, attempt.job_id).state = attempt.state = "FAILED"
            attempt.finished_at = now()
    for _ in range(4):
        services.control.run_once()
    assert [len(list_repairs(services, job_id)) for job_id in jobs] == [0, 1, 1]
    monkeypatch.setattr(launcher, "kill", kill)
    services.control.run_once()


def test_processes_of_another_service_are_left_alone(settings: Settings, tmp_path: Path) -> None:
    services = create_services(settings)
    _, pid = start_job(services)
    other = create_services(settings.model_copy(update={"database_url": f"sqlite:///{tmp_path / 'other.sqlite3'}"}))
    other.control.run_once()
    other.control.run_once()
    assert is_running(pid)


def test_processes_of_the_original_are_left_alone_by_a_copy_of_its_database(settings: Settings, tmp_path: Path) -> None:
    services = create_services(settings)
    job_id, pid = start_job(services)
    with services.database.write() as session:
        session.execute(delete(Job).where(Job.id == job_id))
    services.control.stop()
    copy = create_services(settings.model_copy(update={"runs_directory": tmp_path / "runs of the copy"}))
    for _ in range(2):
        copy.control.run_once()
    assert is_running(pid)
    copy.control.stop()
    # It is the runs directory that counts.
    run_until_ended(create_services(settings), pid)


def test_an_attempt_of_another_machine_is_left_alone_and_the_job_tells(settings: Settings) -> None:
    services = create_services(settings)
    job_id, pid = start_job(services)
    with services.database.write() as session:
        session.query(Attempt).filter_by(job_id=job_id).one().node = "elsewhere"
    for _ in range(3):
        services.control.run_once()
    job = services.jobs.get(job_id, USER)
    assert (job.state, job.num_attempts) == ("RUNNING", 1)
    assert job.reason == "unseen"
    assert "runs on elsewhere" in job.message
    assert list_repairs(services, job_id) == [job.message]
    assert is_running(pid)


def test_a_job_on_a_lost_machine_is_cancelled_and_its_processes_killed_later(
    settings: Settings,
) -> None:
    services = create_services(settings)
    job_id, pid = start_job(services)
    with services.database.write() as session:
        attempt = session.query(Attempt).filter_by(job_id=job_id).one()
        here, attempt.node = attempt.node, "elsewhere"
    services.control.run_once()
    services.jobs.change(job_id, USER, actions.cancel)
    job = run_until(services, job_id, "CANCELLED")
    assert (job.reason, job.num_attempts) == ("user_cancelled", 1)
    with services.database.write() as session:
        session.query(Attempt).filter_by(job_id=job_id).one().node = here
    run_until_ended(services, pid)


def test_an_attempt_that_is_seen_again_runs_as_before(settings: Settings) -> None:
    services = create_services(settings)
    job_id, _ = start_job(services)
    with services.database.write() as session:
        attempt = session.query(Attempt).filter_by(job_id=job_id).one()
        here, attempt.node = attempt.node, "elsewhere"
    services.control.run_once()
    with services.database.write() as session:
        session.query(Attempt).filter_by(job_id=job_id).one().node = here
    for _ in range(2):
        services.control.run_once()
    job = services.jobs.get(job_id, USER)
    assert (job.state, job.reason) == ("RUNNING", "process_started")
    assert [message.split(" ")[0] for message in list_repairs(services, job_id)] == ["runs", "is"]


def test_the_end_of_a_process_wakes_the_loop(settings: Settings) -> None:
    # Were it not for a wake-up, each state would take an hour.
    slow = settings.model_copy(update={"reconcile_interval_seconds": 3600.0})
    with serve_api(slow, runs_control_loop=True) as api:
        job = api.submit(behaviour="succeed")
        assert api.wait_for(job["id"], "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
