"""Restarts of jobs, with real processes."""

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import service.launchers.local
from service.app import Services, create_services
from service.jobs import actions
from service.reports.pages import MetricQuery
from service.settings import Settings
from service.store.models import Job
from tests.patience import wait_until
from tests.service.api import Api
from tests.service.control.rounds import USER, run_until, submit
from tests.service.processes import is_running

LONG_SECONDS = 600.0


@pytest.fixture
def slow_restart_settings(settings: Settings) -> Settings:
    """Settings with a restart delay so long that no job is restarted while a test runs."""
    return settings.model_copy(update={"restart_delay_seconds": LONG_SECONDS, "max_restart_delay_seconds": 1e4})


def end_wait(services: Services, job_id: str) -> None:
    """End a job's wait for its next attempt."""
    with services.database.write() as session:
        session.get_one(Job, job_id).restarts_at = datetime.now(UTC)


def list_messages(api: Api, job_id: str, state: str) -> list[str]:
    events = api.viewer.get(f"/v1/jobs/{job_id}/events").json()["items"]
    return [event["message"] for event in events if event["to_state"] == state]


def test_a_crashed_job_says_when_and_why_it_starts_again_and_which_attempt_that_is(
    slow_restart_settings: Settings,
) -> None:
    services = create_services(slow_restart_settings)
    before = datetime.now(UTC)
    job = run_until(services, submit(services, "crash"), "RECOVERING")
    assert job.reason == "worker_crashed"
    assert "a wheel came off" in job.message
    assert job.restarts_at is not None
    assert before < job.restarts_at - timedelta(seconds=LONG_SECONDS) < datetime.now(UTC)
    assert (
        f"attempt 2 of at most 4 (if none makes progress) starts 600 s later, at {job.restarts_at:%H:%M:%S} UTC"
        in job.message
    )


def test_a_wait_outlives_the_service_and_blocks_nobody(slow_restart_settings: Settings) -> None:
    services = create_services(slow_restart_settings)
    waiting = run_until(services, submit(services, "crash", priority=5), "RECOVERING")
    services.control.stop()
    restarted = create_services(slow_restart_settings)
    other = submit(restarted, "wait")
    run_until(restarted, other, "RUNNING")
    job = restarted.jobs.get(waiting.id, USER)
    assert (job.state, job.restarts_at, job.message) == ("RECOVERING", waiting.restarts_at, waiting.message)
    end_wait(restarted, waiting.id)
    restarted.control.run_once()
    job = restarted.jobs.get(waiting.id, USER)
    assert (job.num_attempts, job.restarts_at) == (2, None)


def test_a_job_that_could_not_be_launched_waits_in_the_queue_and_blocks_nobody(
    slow_restart_settings: Settings, tmp_path: Path
) -> None:
    broken = create_services(slow_restart_settings.model_copy(update={"trainer_python": tmp_path / "nothing"}))
    job_id = submit(broken, "wait", priority=5)
    broken.control.run_once()
    broken.control.stop()
    services = create_services(slow_restart_settings)
    other = submit(services, "wait")
    run_until(services, other, "RUNNING")
    job = services.jobs.get(job_id, USER)
    assert (job.state, job.reason, job.num_attempts) == ("QUEUED", "restarting", 1)
    assert "No such file" in job.message
    assert "attempt 2 of at most 4 (if none makes progress) starts 600 s later" in job.message
    end_wait(services, job_id)
    assert run_until(services, job_id, "RUNNING").num_attempts == 2


@pytest.mark.parametrize("is_in_the_queue", [False, True])
def test_cancelling_a_job_that_waits_to_restart_works_at_once(
    slow_restart_settings: Settings, tmp_path: Path, is_in_the_queue: bool
) -> None:
    python = tmp_path / "nothing" if is_in_the_queue else slow_restart_settings.trainer_python
    services = create_services(slow_restart_settings.model_copy(update={"trainer_python": python}))
    state = "QUEUED" if is_in_the_queue else "RECOVERING"
    job = run_until(services, submit(services, "crash"), state)
    services.jobs.change(job.id, USER, actions.cancel)
    services.control.run_once()
    job = services.jobs.get(job.id, USER)
    assert (job.state, job.reason, job.restarts_at) == ("CANCELLED", "user_cancelled", None)


def test_a_deadline_ends_the_wait(slow_restart_settings: Settings) -> None:
    services = create_services(slow_restart_settings)
    job = run_until(services, submit(services, "crash", deadline_seconds=3000), "RECOVERING")
    services.control.run_once()
    assert services.jobs.get(job.id, USER).state == "RECOVERING"
    with services.database.write() as session:
        session.get_one(Job, job.id).deadline_at = datetime.now(UTC) - timedelta(seconds=1)
    services.control.run_once()
    job = services.jobs.get(job.id, USER)
    assert (job.state, job.reason) == ("FAILED", "deadline_exceeded")
    assert job.message == "deadline_seconds = 3000 passed before attempt 2 could start"


@pytest.mark.slow
def test_restarts_in_a_row_wait_longer_and_those_that_get_further_do_not(live_api: Api) -> None:
    stuck, further = (live_api.submit(behaviour=behaviour) for behaviour in ("crash", "crash_further_every_time"))
    assert live_api.wait_for(stuck["id"], "FAILED")["num_attempts"] == 4
    # Its fifth attempt takes the last step; three more make no progress.
    assert live_api.wait_for(further["id"], "FAILED")["num_attempts"] == 8
    messages = [list_messages(live_api, job["id"], "RECOVERING") for job in (stuck, further)]
    waits = [[message.rpartition(" starts ")[2].split(" ")[0] for message in of_job] for of_job in messages]
    assert waits == [["0.05", "0.1", "0.2"], [*["0.05"] * 5, "0.1", "0.2"]]
    attempts = live_api.viewer.get(f"/v1/jobs/{further['id']}/attempts").json()["items"]
    assert [(attempt["start_step"], attempt["saved_step"]) for attempt in attempts] == [
        *((step, step + 1) for step in range(5)),
        *[(5, 5)] * 3,
    ]


@pytest.mark.slow
def test_a_stop_from_elsewhere_uses_up_no_restart(live_api: Api) -> None:
    job = live_api.submit(behaviour="wait", max_restarts=0)
    for number in (1, 2):
        directory = Path(job["run_directory"]) / f"attempt-{number}"
        wait_until((directory / "spool/rank-0.metrics.jsonl").exists)
        os.kill(json.loads((directory / "process.json").read_text())["pid"], signal.SIGTERM)
        wait_until(lambda number=number: live_api.services.jobs.get(job["id"], USER).num_attempts == number + 1)
    attempts = live_api.viewer.get(f"/v1/jobs/{job['id']}/attempts").json()["items"]
    assert [(attempt["state"], attempt["reason"]) for attempt in attempts[:2]] == [("STOPPED", "stop_requested")] * 2
    first, second = list_messages(live_api, job["id"], "RECOVERING")
    assert first.startswith("attempt 2 of at most 2 (if none makes progress) starts")
    assert second.startswith("attempt 3 of at most 3 (if none makes progress) starts")


def test_ranks_that_outlive_a_killed_launch_process_are_gone_before_the_next_attempt(
    slow_restart_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = create_services(slow_restart_settings)
    job_id = submit(services, "die_leaving_a_rank")
    stray = slow_restart_settings.runs_directory / job_id / "attempt-1/stray.pid"
    with monkeypatch.context() as patch:
        # As for processes that the kernel blocks: signals have no effect for a while.
        patch.setattr(service.launchers.local, "kill_all", lambda _: None)
        services.control.run_once()
        wait_until(stray.exists)
        services.control.run_once()
        services.control.run_once()
        assert services.jobs.get(job_id, USER).state in {"STARTING", "RUNNING"}
    pid = int(stray.read_text())
    assert is_running(pid)
    job = run_until(services, job_id, "RECOVERING")
    assert not is_running(pid)
    assert job.reason == "worker_crashed"
    assert "left no outcome" in job.message


def test_an_attempt_that_died_before_its_number_was_written_is_not_rerun(
    slow_restart_settings: Settings,
) -> None:
    services = create_services(slow_restart_settings)
    job_id = submit(services, "lose_two_steps_once")
    services.control.run_once()
    directory = slow_restart_settings.runs_directory / job_id
    record = directory / "attempt-1/process.json"
    pid = json.loads(record.read_text())["pid"]
    wait_until(lambda: not is_running(pid))
    # As a service leaves it that is killed between the start of the process and the record of it.
    record.write_text("{}")
    (directory / "go-on").touch()
    services.control.stop()
    restarted = create_services(slow_restart_settings)
    job = run_until(restarted, job_id, "RECOVERING", "SUCCEEDED")
    assert (job.state, job.num_attempts, job.reason) == ("RECOVERING", 1, "worker_crashed")
    end_wait(restarted, job_id)
    run_until(restarted, job_id, "SUCCEEDED")
    query = MetricQuery(kind="step")
    page = json.loads(restarted.reports.read_metrics(job_id, USER, query))
    assert [item["step"] for item in page["items"]] == [1, 2, 3, 4, 5]


def test_every_attempt_reads_the_document_of_the_first(slow_restart_settings: Settings) -> None:
    services = create_services(slow_restart_settings)
    job_id = submit(services, "crash")
    run_until(services, job_id, "RECOVERING")
    spec = slow_restart_settings.runs_directory / job_id / "spec.json"
    first = spec.read_bytes()
    with services.database.write() as session:
        # As a later version of the program might resolve it.
        job = session.get_one(Job, job_id)
        job.resolved = {**job.resolved, "job": {**job.resolved["job"], "precision": "bf16"}}
    end_wait(services, job_id)
    services.control.run_once()
    assert services.jobs.get(job_id, USER).num_attempts == 2
    assert spec.read_bytes() == first


@pytest.mark.slow
def test_a_curve_goes_on_from_the_checkpoint_without_a_gap_or_a_double(live_api: Api) -> None:
    job_id = live_api.submit(behaviour="lose_two_steps_once")["id"]
    path = f"/v1/jobs/{job_id}"

    def find_restarted_job() -> dict[str, Any] | None:
        job = live_api.viewer.get(path).json()
        return job if job["num_attempts"] == 2 and job["progress"]["step"] == 2 else None

    job = wait_until(find_restarted_job)
    expected = {"step": 2, "num_steps": 5, "done_fraction": 0.4, "loss": 0.5, "auc": 0.72}
    assert {name: job["progress"][name] for name in expected} == expected
    assert list_metric_steps(live_api, path) == [("step", 1), ("step", 2), ("evaluation", 2)]
    everything = [("step", 1), ("step", 2), ("evaluation", 2), ("step", 3), ("step", 4), ("evaluation", 4)]
    assert list_metric_steps(live_api, path, attempt=1) == everything
    (Path(job["run_directory"]) / "go-on").touch()
    job = live_api.wait_for(job_id, "SUCCEEDED", "FAILED")
    assert (job["state"], job["num_attempts"], job["progress"]["step"]) == ("SUCCEEDED", 2, 5)
    assert list_metric_steps(live_api, path, kind="step") == [("step", step) for step in (1, 2, 3, 4, 5)]
    assert list_metric_steps(live_api, path, kind="evaluation") == [("evaluation", 2), ("evaluation", 5)]
    assert list_metric_steps(live_api, path, attempt=1) == everything
    attempts = live_api.viewer.get(f"{path}/attempts").json()["items"]
    assert [(a["reason"], a["start_step"], a["saved_step"]) for a in attempts] == [
        ("worker_crashed", 0, 2),
        ("completed", 2, None),
    ]
    (checkpoint,) = live_api.viewer.get(f"{path}/checkpoints").json()["items"]
    assert checkpoint["time"] < attempts[0]["finished_at"]
    assert checkpoint | {"time": None} == {
        "step": 2,
        "num_samples": 200,
        "done_fraction": 0.4,
        "time": None,
        "num_bytes": 1,
        "world_size": 1,
        "path": f"{job['run_directory']}/checkpoints/step-00000002",
    }


def list_metric_steps(api: Api, path: str, **query: Any) -> list[tuple[str, int]]:
    items = api.viewer.get(f"{path}/metrics", params=query).json()["items"]
    return [(item["kind"], item["step"]) for item in items]
