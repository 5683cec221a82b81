"""The service as a process of its own: started, killed, started again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from service.lock import AlreadyServingError, lock_state_directory
from service.serve import AddressError, serve
from service.settings import Settings
from service.state_directory import StateDirectoryError
from tests.patience import wait_until
from tests.service.api import Api, make_client, make_document
from tests.service.processes import is_running

PROGRAM = (
    "import sys; from pathlib import Path; from service.serve import serve; from service.settings import Settings; "
    "serve(Settings(), Path(sys.argv[1]))"
)


@dataclass
class ServiceProcess:
    """A service that runs in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    admin_key: str | None
    signin_link: str

    def make_client(self, api_key: str | None = None) -> httpx.Client:
        return make_client(self.url, api_key or self.admin_key)


@pytest.fixture
def start_service(settings: Settings, tmp_path: Path) -> Iterator[Callable[[], ServiceProcess]]:
    """Function that starts a service. Services still running after the test are killed."""
    started: list[subprocess.Popen[str]] = []

    def start() -> ServiceProcess:
        ready = tmp_path / f"ready-{len(started)}.json"
        values = settings.model_dump(mode="json", exclude={"database_url", "runs_directory"})
        values["data_roots"] = os.pathsep.join(values["data_roots"])
        environment = {f"DLRM_{name.upper()}": str(value) for name, value in values.items()}
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(ready)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        wait_until(lambda: ready.exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        assert ready.stat().st_mode & 0o777 == 0o600
        return ServiceProcess(process, **json.loads(ready.read_text()))

    yield start
    for process in started:
        process.kill()
        process.communicate()


def get_state(client: httpx.Client, job_id: str) -> str:
    return client.get(f"/v1/jobs/{job_id}").json()["state"]


def test_a_killed_service_leaves_its_job_running_and_finds_it_again(
    start_service: Callable[[], ServiceProcess],
) -> None:
    first = start_service()
    api_key = first.admin_key
    with first.make_client() as client:
        job = client.post("/v1/jobs", json=make_document()).json()
        wait_until(lambda: get_state(client, job["id"]) == "RUNNING")
    pid = json.loads((Path(job["run_directory"]) / "attempt-1/process.json").read_text())["pid"]
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    assert is_running(pid)
    second = start_service()
    assert second.admin_key is None
    with second.make_client(api_key) as client:
        assert get_state(client, job["id"]) == "RUNNING"
        assert client.post(f"/v1/jobs/{job['id']}/cancel").status_code == 202
        wait_until(lambda: get_state(client, job["id"]) == "CANCELLED")
        attempts = client.get(f"/v1/jobs/{job['id']}/attempts").json()["items"]
    assert [(attempt["number"], attempt["state"]) for attempt in attempts] == [(1, "STOPPED")]
    assert not is_running(pid)


def test_what_ended_while_the_service_was_away_is_taken_in(start_service: Callable[[], ServiceProcess]) -> None:
    first = start_service()
    with first.make_client() as client:
        job = client.post("/v1/jobs", json=make_document("finish_when_asked_to_stop")).json()
        wait_until(lambda: get_state(client, job["id"]) == "RUNNING")
    attempt = Path(job["run_directory"]) / "attempt-1"
    wait_until((attempt / "logs/rank-0.log").exists)
    first.process.kill()
    first.process.wait()
    pid = json.loads((attempt / "process.json").read_text())["pid"]
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not is_running(pid))
    second = start_service()
    with second.make_client(first.admin_key) as client:
        wait_until(lambda: get_state(client, job["id"]) == "SUCCEEDED")


def test_a_service_told_to_stop_ends_well_and_leaves_its_jobs(start_service: Callable[[], ServiceProcess]) -> None:
    served = start_service()
    with served.make_client() as client:
        job = client.post("/v1/jobs", json=make_document()).json()
        wait_until(lambda: get_state(client, job["id"]) == "RUNNING")
    pid = json.loads((Path(job["run_directory"]) / "attempt-1/process.json").read_text())["pid"]
    served.process.send_signal(signal.SIGTERM)
    printed, log = served.process.communicate()
    assert served.process.returncode == 0, log
    assert is_running(pid)
    assert served.admin_key is not None
    token = served.signin_link.partition("#token=")[2]
    assert served.admin_key in printed
    assert served.signin_link in printed
    assert served.admin_key not in log
    assert token not in log


def test_the_printed_link_signs_a_browser_in(start_service: Callable[[], ServiceProcess]) -> None:
    served = start_service()
    address, _, token = served.signin_link.partition("#token=")
    with httpx.Client(base_url=served.url) as browser:
        page = browser.get(address)
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert browser.post("/v1/session", json={"token": token}).status_code == 204
        assert browser.get("/v1/keys").status_code == 200


def test_a_second_service_on_a_state_directory_is_refused(settings: Settings) -> None:
    with lock_state_directory(settings.state_directory), pytest.raises(AlreadyServingError, match=str(os.getpid())):
        serve(settings)


def test_a_port_that_is_taken_is_told_with_what_to_set(settings: Settings, api: Api) -> None:
    port = api.services.settings.port
    same_port = settings.model_copy(update={"port": port, "state_directory": settings.state_directory / "another"})
    with pytest.raises(AddressError, match=rf"port {port}.*DLRM_PORT"):
        serve(same_port)


@pytest.mark.parametrize("kind", ["a directory of the kernel", "a file", "below a file", "its lock is a directory"])
def test_a_state_directory_that_cannot_be_used_is_told_in_a_line(settings: Settings, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "file"
    file.touch()
    locked = tmp_path / "locked"
    (locked / "service.lock").mkdir(parents=True)
    paths = {
        "a directory of the kernel": Path("/proc/state"),
        "a file": file,
        "below a file": file / "state",
        "its lock is a directory": locked,
    }
    with pytest.raises(StateDirectoryError, match="DLRM_STATE_DIRECTORY: cannot use") as raised:
        serve(settings.model_copy(update={"state_directory": paths[kind]}))
    assert str(paths[kind]) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_state_directory_is_its_owners_alone(settings: Settings) -> None:
    with lock_state_directory(settings.state_directory):
        assert settings.state_directory.stat().st_mode & 0o777 == 0o700
