"""Commands that follow a job outlive a service that is stopped and started again at the same address."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cli.local.errors import EXIT_SERVICE_AWAY
from service.client import Client, JobDetails
from service.launchers.processes import find_marked, kill_all
from tests.cli.conftest import command
from tests.patience import wait_until
from tests.service.api import make_document, make_environment, make_settings
from tests.service.databases import lend_database
from tests.service.service_process import ServiceProcess

DOCUMENT = make_document("talk")


@dataclass
class Service(ServiceProcess):
    """The service, and commands that follow its jobs."""

    followers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def api_key(self) -> str:
        return (self.state / "admin-key").read_text()

    def connect(self) -> Client:
        return Client(self.url, self.api_key)

    def run(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a command in the directory of the service; what it prints is in the files `out` and `err`."""
        own = {"DLRM_URL": self.url, "DLRM_API_KEY": self.api_key, "PYTHONPATH": os.pathsep.join(sys.path)}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            process = subprocess.Popen(
                command(*arguments), cwd=self.directory, env={**os.environ, **own}, stdout=out, stderr=err
            )
        self.followers.append(process)
        return process

    @property
    def out(self) -> Path:
        return self.directory / "out"

    @property
    def err(self) -> Path:
        return self.directory / "err"


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    with lend_database("sqlite", tmp_path / "state", request) as url:
        service = Service(tmp_path, make_environment(make_settings(tmp_path, url)))
        try:
            with service:
                yield service
        finally:
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
