"""What happens between two attempts of a job, with real processes."""

import json
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import service.launchers.local
from service.app import create_services
from service.jobs.models import Job
from service.jobs.service import Submission
from service.keys.roles import Role
from service.keys.service import Principal

SOMEBODY = Principal("key_0", "somebody", Role.ADMIN)
LONG_SECONDS = 600.0


@pytest.fixture
def patient(settings: Any) -> Any:
    """Settings under which no job is started again while a test runs."""
    return settings.model_copy(update={"restart_delay_seconds": LONG_SECONDS, "max_restart_delay_seconds": 1e4})


@pytest.fixture
def submitted(make_document: Callable[..., Any]) -> Callable[..., str]:
    def submit(services: Any, behaviour: str, **changes: Any) -> str:
        return services.jobs.submit(Submission(make_document(behaviour, **changes), SOMEBODY))[0].id

    return submit


def run_until(services: Any, job_id: str, state: str, eventually: Any) -> Any:
    def look() -> Any:
        services.control.run_once()
        job = services.jobs.get(job_id)
        return job if job.state == state else None

    return eventually(look)


def bring_forward(services: Any, job_id: str) -> None:
    """End the wait of a job."""
    with services.database.write() as session:
        session.get_one(Job, job_id).restarts_at = datetime.now(UTC)


def messages_of(api: Any, job_id: str, state: str) -> list[str]:
    events = api.viewer.get(f"/v1/jobs/{job_id}/events").json()["items"]
    return [event["message"] for event in events if event["to_state"] == state]


def test_a_crashed_job_says_when_and_why_it_starts_again_and_which_attempt_that_is(
    patient: Any, submitted: Any, eventually: Any
) -> None:
    services = create_services(patient)
    before = datetime.now(UTC)
    job = run_until(services, submitted(services, "crash"), "RECOVERING", eventually)
    assert job.reason == "worker_crashed"
    assert "a wheel came off" in job.message
    assert before < job.restarts_at - timedelta(seconds=LONG_SECONDS) < datetime.now(UTC)
    assert (
        f"attempt 2 of at most 4, if none gets further, starts 600 s later, at {job.restarts_at:%H:%M:%S} UTC"
        in job.message
    )


def test_a_wait_outlives_the_service_and_blocks_nobody(patient: Any, submitted: Any, eventually: Any) -> None:
    services = create_services(patient)
    waiting = run_until(services, submitted(services, "crash", priority=5), "RECOVERING", eventually)
    restarted = create_services(patient)
    other = submitted(restarted, "wait")
    run_until(restarted, other, "RUNNING", eventually)
    found = restarted.jobs.get(waiting.id)
    assert (found.state, found.restarts_at, found.message) == ("RECOVERING", waiting.restarts_at, waiting.message)
    bring_forward(restarted, waiting.id)
    restarted.control.run_once()
    found = restarted.jobs.get(waiting.id)
    assert (found.num_attempts, found.restarts_at) == (2, None)


def test_a_job_that_could_not_be_launched_waits_in_the_queue_and_blocks_nobody(
    patient: Any, submitted: Any, eventually: Any, tmp_path: Path
) -> None:
    broken = create_services(patient.model_copy(update={"trainer_python": tmp_path / "nothing"}))
    job_id = submitted(broken, "wait", priority=5)
    broken.control.run_once()
    services = create_services(patient)
    other = submitted(services, "wait")
    run_until(services, other, "RUNNING", eventually)
    job = services.jobs.get(job_id)
    assert (job.state, job.reason, job.num_attempts) == ("QUEUED", "restarting", 1)
    assert "No such file" in job.message
    assert "attempt 2 of at most 4, if none gets further, starts 600 s later" in job.message
    bring_forward(services, job_id)
    assert run_until(services, job_id, "RUNNING", eventually).num_attempts == 2


@pytest.mark.parametrize("is_in_the_queue", [False, True])
def test_cancelling_a_job_that_waits_to_restart_works_at_once(
    patient: Any, submitted: Any, eventually: Any, tmp_path: Path, is_in_the_queue: bool
) -> None:
    python = tmp_path / "nothing" if is_in_the_queue else patient.trainer_python
    services = create_services(patient.model_copy(update={"trainer_python": python}))
    state = "QUEUED" if is_in_the_queue else "RECOVERING"
    job = run_until(services, submitted(services, "crash"), state, eventually)
    services.jobs.cancel(job.id, SOMEBODY)
    services.control.run_once()
    job = services.jobs.get(job.id)
    assert (job.state, job.reason, job.restarts_at) == ("CANCELLED", "user_cancelled", None)


def test_a_deadline_ends_the_wait(patient: Any, submitted: Any, eventually: Any) -> None:
    services = create_services(patient)
    job = run_until(services, submitted(services, "crash", deadline_seconds=3000), "RECOVERING", eventually)
    services.control.run_once()
    assert services.jobs.get(job.id).state == "RECOVERING"
    with services.database.write() as session:
        session.get_one(Job, job.id).started_at = datetime.now(UTC) - timedelta(seconds=3001)
    services.control.run_once()
    job = services.jobs.get(job.id)
    assert (job.state, job.reason) == ("FAILED", "deadline_exceeded")
    assert job.message == "deadline_seconds = 3000 were over before attempt 2 could start"


def test_restarts_in_a_row_wait_longer_and_those_that_get_further_do_not(live_api: Any) -> None:
    stuck, further = (live_api.submit(behaviour=behaviour) for behaviour in ("crash", "crash_further_every_time"))
    assert live_api.wait_for(stuck["id"], "FAILED")["num_attempts"] == 4
    # Its fifth attempt makes the last step there is; three more come no further.
    assert live_api.wait_for(further["id"], "FAILED")["num_attempts"] == 8
    waits = [
        [message.rpartition(" starts ")[2].split(" ")[0] for message in messages_of(live_api, job["id"], "RECOVERING")]
        for job in (stuck, further)
    ]
    assert waits == [["0.05", "0.1", "0.2"], [*["0.05"] * 5, "0.1", "0.2"]]
    attempts = live_api.viewer.get(f"/v1/jobs/{further['id']}/attempts").json()["items"]
    assert [(attempt["start_step"], attempt["saved_step"]) for attempt in attempts] == [
        *((step, step + 1) for step in range(5)),
        *[(5, 5)] * 3,
    ]


def test_a_stop_from_elsewhere_uses_up_no_restart(live_api: Any, eventually: Any) -> None:
    job = live_api.submit(behaviour="wait", max_restarts=0)
    for number in (1, 2):
        directory = Path(job["run_directory"]) / f"attempt-{number}"
        eventually((directory / "spool/rank-0.metrics.jsonl").exists)
        os.kill(json.loads((directory / "process.json").read_text())["pid"], signal.SIGTERM)
        eventually(lambda number=number: live_api.services.jobs.get(job["id"]).num_attempts == number + 1)
    attempts = live_api.viewer.get(f"/v1/jobs/{job['id']}/attempts").json()["items"]
    assert [(attempt["state"], attempt["reason"]) for attempt in attempts[:2]] == [("STOPPED", "stop_requested")] * 2
    first, second = messages_of(live_api, job["id"], "RECOVERING")
    assert first.startswith("attempt 2 of at most 2, if none gets further, starts")
    assert second.startswith("attempt 3 of at most 3, if none gets further, starts")


def test_ranks_that_outlive_a_killed_launch_process_are_gone_before_the_next_attempt(
    patient: Any, submitted: Any, eventually: Any, is_running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = create_services(patient)
    job_id = submitted(services, "die_leaving_a_rank")
    stray = patient.runs_directory / job_id / "attempt-1/stray.pid"
    with monkeypatch.context() as patch:
        # As in a process that the kernel holds: signals do nothing for a while.
        patch.setattr(service.launchers.local, "kill_all", lambda _: None)
        patch.setattr(service.launchers.local, "KILL_ROUNDS", 1)
        services.control.run_once()
        eventually(stray.exists)
        services.control.run_once()
        services.control.run_once()
        assert services.jobs.get(job_id).state in {"STARTING", "RUNNING"}
    pid = int(stray.read_text())
    assert is_running(pid)
    job = run_until(services, job_id, "RECOVERING", eventually)
    assert not is_running(pid)
    assert job.reason == "worker_crashed"
    assert "left no outcome" in job.message


def test_every_attempt_reads_the_document_of_the_first(patient: Any, submitted: Any, eventually: Any) -> None:
    services = create_services(patient)
    job_id = submitted(services, "crash")
    run_until(services, job_id, "RECOVERING", eventually)
    spec = patient.runs_directory / job_id / "spec.json"
    first = spec.read_bytes()
    with services.database.write() as session:
        # As a later version of the program might fill it in.
        job = session.get_one(Job, job_id)
        job.resolved = {**job.resolved, "job": {**job.resolved["job"], "precision": "bf16"}}
    bring_forward(services, job_id)
    services.control.run_once()
    assert services.jobs.get(job_id).num_attempts == 2
    assert spec.read_bytes() == first


def test_a_curve_goes_on_from_the_checkpoint_without_a_gap_or_a_double(live_api: Any, eventually: Any) -> None:
    job_id = live_api.submit(behaviour="lose_two_steps_once")["id"]
    path = f"/v1/jobs/{job_id}"

    def begun_again() -> Any:
        job = live_api.viewer.get(path).json()
        return job if job["num_attempts"] == 2 and job["progress"]["step"] == 2 else None

    job = eventually(begun_again)
    expected = {"step": 2, "num_steps": 5, "done_fraction": 0.4, "loss": 0.5, "auc": 0.72}
    assert {name: job["progress"][name] for name in expected} == expected
    assert said(live_api, path) == [("step", 1), ("step", 2), ("evaluation", 2)]
    everything = [("step", 1), ("step", 2), ("evaluation", 2), ("step", 3), ("step", 4), ("evaluation", 4)]
    assert said(live_api, path, attempt=1) == everything
    (Path(job["run_directory"]) / "go-on").touch()
    job = live_api.wait_for(job_id, "SUCCEEDED", "FAILED")
    assert (job["state"], job["num_attempts"], job["progress"]["step"]) == ("SUCCEEDED", 2, 5)
    assert said(live_api, path, kind="step") == [("step", step) for step in (1, 2, 3, 4, 5)]
    assert said(live_api, path, kind="evaluation") == [("evaluation", 2), ("evaluation", 5)]
    assert said(live_api, path, attempt=1) == everything
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


def said(api: Any, path: str, **query: Any) -> list[tuple[str, int]]:
    items = api.viewer.get(f"{path}/metrics", params=query).json()["items"]
    return [(item["kind"], item["step"]) for item in items]
