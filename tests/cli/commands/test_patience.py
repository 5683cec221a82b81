"""Commands that follow a job outlive a service that is stopped and started again at the same address."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cli.local.errors import EXIT_SERVICE_AWAY
from service.client import Client, JobDetails, find_connection
from service.client.connection import ReadyFile, get_ready_file_path, save_admin_key
from service.launchers.processes import find_marked, kill_all
from tests.patience import wait_until
from tests.service.api import write_fake_python

DOCUMENT: dict[str, Any] = {
    "labels": {"behaviour": "talk"},
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB"},
}


@dataclass
class Service:
    """A service that can be stopped and started again at the same address."""

    directory: Path
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = None
    followers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def state(self) -> Path:
        return self.directory / ".dlrm"

    def start(self) -> None:
        self.state.mkdir(exist_ok=True)
        save_admin_key(self.state)
        ready = get_ready_file_path(self.state)
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "cli", "serve", "--port", str(self.port)]
        settings = {
            "DLRM_STATE_DIRECTORY": str(self.state),
            "DLRM_TRAINER_PYTHON": str(self.directory / "python"),
            "DLRM_NUM_CORES": "2",
            "DLRM_RECONCILE_INTERVAL_SECONDS": "0.1",
        }
        with (self.directory / "service.log").open("ab") as log:
            process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)
        url: str = wait_until(lambda: (found := ReadyFile.read(ready)) and found.url, process)
        self.process, self.port = process, urlsplit(url).port or 0

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
            self.process = None

    def connect(self) -> Client:
        found = find_connection(state_directory=self.state)
        return Client(found.url, found.api_key)

    def run(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a command in the directory of the service; what it prints is in the files `out` and `err`."""
        command = [sys.executable, "-m", "cli", *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DLRM_")}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        with self.out.open("wb") as out, self.err.open("wb") as err:
            process = subprocess.Popen(command, cwd=self.directory, env=environment, stdout=out, stderr=err)
        self.followers.append(process)
        return process

    @property
    def out(self) -> Path:
        return self.directory / "out"

    @property
    def err(self) -> Path:
        return self.directory / "err"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    write_fake_python(tmp_path / "python")
    service = Service(tmp_path)
    service.start()
    try:
        yield service
    finally:
        service.stop()
        for follower in service.followers:
            follower.kill()
            follower.wait()
        for attempt in service.state.glob("runs/*/attempt-*"):
            kill_all(find_marked(attempt))


def wait_for_text(path: Path, text: str, process: "subprocess.Popen[bytes]") -> None:
    wait_until(lambda: text in path.read_text(), process)


def submit(service: Service) -> JobDetails:
    """Submit a job, and return it once it runs."""
    with service.connect() as client:
        job_id = client.submit(DOCUMENT).id
        return next(job for job in client.follow(job_id, 0.1) if job.state == "RUNNING" and job.progress.step)


def let_end(job: JobDetails) -> None:
    Path(job.run_directory or "", "go-on").touch()


@pytest.mark.slow
def test_a_followed_submission_goes_on_once_the_service_is_back(service: Service) -> None:
    (service.directory / "job.json").write_text(json.dumps(DOCUMENT))
    follower = service.run("submit", "job.json", "--follow")
    wait_for_text(service.err, "step 1/5", follower)
    with service.connect() as client:
        job = client.job(service.out.read_text().strip())
    service.stop()
    wait_for_text(service.err, "does not answer since ", follower)
    assert f"http://127.0.0.1:{service.port}" in service.err.read_text()
    assert "the job continues" in service.err.read_text()
    service.start()
    wait_for_text(service.err, "the service answers again", follower)
    let_end(job)
    assert follower.wait() == 0
    assert service.err.read_text().count("does not answer") == 1
    assert "SUCCEEDED" in service.err.read_text()


@pytest.mark.slow
def test_a_followed_log_goes_on_exactly_where_it_was(service: Service) -> None:
    job = submit(service)
    follower = service.run("logs", job.id, "--follow")
    wait_for_text(service.out, "line 5\n", follower)
    service.stop()
    wait_for_text(service.err, "the job continues", follower)
    service.start()
    wait_for_text(service.err, "the service answers again", follower)
    let_end(job)
    assert follower.wait() == 0
    assert service.out.read_text() == Path(job.run_directory or "", "attempt-1/logs/rank-0.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["submit", "logs"])
def test_a_service_that_stays_away_ends_the_command_with_a_code_of_its_own(service: Service, command: str) -> None:
    if command == "submit":
        (service.directory / "job.json").write_text(json.dumps(DOCUMENT))
        follower = service.run("submit", "job.json", "--follow", "--patience", "0.5")
        wait_for_text(service.err, "step 1/5", follower)
    else:
        follower = service.run("logs", submit(service).id, "--follow", "--patience", "0.5")
        wait_for_text(service.out, "line 1\n", follower)
    service.stop()
    assert follower.wait() == EXIT_SERVICE_AWAY == 3
    last = service.err.read_text().splitlines()[-1]
    assert last.startswith("error: the service at http://127.0.0.1:")
    assert "the job continues" in last
    assert "--patience" in last
