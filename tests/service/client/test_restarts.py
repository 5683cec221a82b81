"""The client and the commands with a job that is restarted or paused."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.demo.service_process import run_service
from service.client import Client, Job, JobDetails
from service.ids import new_id
from tests.patience import wait_until
from tests.service.api import write_fake_python
from tests.service.databases import lend_database, on_sqlite

pytestmark = on_sqlite

POLL_SECONDS = 0.1


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory, database_kind: str, request: pytest.FixtureRequest
) -> Iterator[Client]:
    python = write_fake_python(tmp_path_factory.mktemp("trainer") / "python")
    settings = {
        "DLRM_TRAINER_PYTHON": str(python),
        "DLRM_NUM_CORES": "2",
        "DLRM_RECONCILE_INTERVAL_SECONDS": "0.1",
        "DLRM_RESTART_DELAY_SECONDS": "0.3",
    }
    state_directory = tmp_path_factory.mktemp("state")
    with (
        lend_database(database_kind, state_directory, request) as url,
        run_service(state_directory, {**settings, "DLRM_DATABASE_URL": url}) as client,
    ):
        yield client


def submit(client: Client, behaviour: str, **changes: Any) -> Job:
    return client.submit(
        {
            "labels": {"behaviour": behaviour},
            "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
            "batch": {"global_size": 64},
            "resources": {"workers_per_node": 1, "memory": "1GiB"},
            **changes,
        }
    )


@pytest.mark.slow
def test_a_followed_job_that_restarts_goes_back_to_its_checkpoint_and_on_to_its_end(client: Client) -> None:
    job = submit(client, "lose_two_steps_once")
    updates: list[JobDetails] = []
    for update in client.follow(job.id, POLL_SECONDS):
        # The wait is shorter than the time between two updates, so that none may show it.
        if update.num_attempts == 2:
            Path(update.run_directory or "", "go-on").touch()
        updates.append(update)
    (waiting,) = [event for event in client.events(job.id) if event.to_state == "RECOVERING"]
    assert "attempt 2 of at most 4" in (waiting.message or "")
    assert updates[-1].state == "SUCCEEDED"
    assert updates[-1].restarts_at is None
    assert updates[-1].progress.step == 5
    assert [metric.step for metric in client.metrics(job.id, kind="step")] == [1, 2, 3, 4, 5]
    assert [metric.step for metric in client.metrics(job.id, kind="step", attempt=1)] == [1, 2, 3, 4]
    assert [(attempt.start_step, attempt.saved_step) for attempt in client.attempts(job.id)] == [(0, 2), (2, None)]
    (checkpoint,) = client.checkpoints(job.id)
    assert (checkpoint.step, checkpoint.done_fraction, checkpoint.num_bytes) == (2, 0.4, 1)
    assert Path(checkpoint.path).is_dir()


def make_command(client: Client, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Make a command against the service of `client`, and its environment."""
    key = client.create_key(new_id("key"), "admin").key or ""
    environment = {**os.environ, "DLRM_URL": client.url, "DLRM_API_KEY": key, "COLUMNS": "200"}
    return [sys.executable, "-m", "cli", *arguments], environment


def run_dlrm(client: Client, *arguments: str) -> str:
    """Run a command against the service of `client`, and return what it prints."""
    command, environment = make_command(client, *arguments)
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.slow
def test_the_command_shows_the_last_checkpoint_and_the_log_of_one_attempt(client: Client) -> None:
    job = submit(client, "crash_further_every_time", max_restarts=1)
    assert [update.state for update in client.follow(job.id, POLL_SECONDS)][-1] == "FAILED"
    assert run_dlrm(client, "logs", job.id, "--follow", "--attempt", "1").count("rank 0 says grüezi") == 1
    last = next(client.checkpoints(job.id))
    assert f"last checkpoint  step 5, {last.time:%H:%M:%S}, 1 byte" in run_dlrm(client, "show", job.id)


@pytest.mark.slow
def test_the_command_follows_the_log_from_one_attempt_to_the_next(client: Client, tmp_path: Path) -> None:
    job = submit(client, "crash_once_when_told")
    follow_until(client, job.id, "RUNNING")
    command, environment = make_command(client, "logs", job.id, "--follow", "--tail", "100")
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out)
    wait_until(log.read_bytes, process)
    Path(client.job(job.id).run_directory or "", "go-on").touch()
    assert process.wait() == 0
    assert log.read_text() == "rank 0 says grüezi\n" * 2
    assert client.job(job.id).state == "SUCCEEDED"


@pytest.mark.slow
def test_a_job_is_paused_and_resumed(client: Client) -> None:
    job = submit(client, "wait")
    follow_until(client, job.id, "RUNNING")
    assert run_dlrm(client, "pause", job.id).split()[0] == job.id
    assert follow_until(client, job.id, "PAUSED").reason == "user_paused"
    assert "user_paused" in run_dlrm(client, "jobs", "--state", "PAUSED")
    assert run_dlrm(client, "resume", job.id) == f"{job.id} QUEUED\n"
    follow_until(client, job.id, "RUNNING")
    assert client.pause(job.id).state == "PAUSING"
    follow_until(client, job.id, "PAUSED")
    assert client.resume(job.id).state == "QUEUED"
    client.cancel(job.id)
    assert follow_until(client, job.id, "CANCELLED").num_attempts <= 3


@pytest.mark.slow
def test_a_queued_job_is_held_and_released(client: Client) -> None:
    first = submit(client, "wait", resources={"workers_per_node": 2, "memory": "1GiB"})
    follow_until(client, first.id, "RUNNING")
    job = submit(client, "succeed")
    assert run_dlrm(client, "hold", job.id) == f"{job.id} held\n"
    assert " held" in run_dlrm(client, "jobs", "--state", "QUEUED")
    assert client.job(job.id).is_held
    client.cancel(first.id)
    follow_until(client, first.id, "CANCELLED")
    assert client.hold(job.id).reason == "held"
    assert "held by " in run_dlrm(client, "show", job.id)
    assert run_dlrm(client, "release", job.id) == f"{job.id} released\n"
    follow_until(client, job.id, "SUCCEEDED")
    assert not client.job(job.id).is_held


def follow_until(client: Client, job_id: str, state: str) -> Job:
    return next(job for job in client.follow(job_id, POLL_SECONDS) if job.state == state)
