"""The service as a process of its own: started, killed, started again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from dlrm.record.state_directory import StateDirectoryError
from service.client import find_connection
from service.database.url import get_sqlite_file, parse_database_url
from service.lock import AlreadyServingError, lock_state, lock_state_directory
from service.serve import AddressError, bind_as_before, get_port, serve
from service.settings import Settings
from tests.patience import wait_until
from tests.service.api import Api, make_client, make_document, make_environment
from tests.service.databases import on_postgresql, on_sqlite
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
    monitoring_port: int | None = None

    def make_client(self, api_key: str | None = None) -> httpx.Client:
        return make_client(self.url, api_key or self.admin_key)


@pytest.fixture
def start_service(settings: Settings, tmp_path: Path) -> Iterator[Callable[[], ServiceProcess]]:
    """Function that starts a service. Services still running after the test are killed."""
    started: list[subprocess.Popen[str]] = []

    def start() -> ServiceProcess:
        ready = tmp_path / f"ready-{len(started)}.json"
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(ready)],
            env={**os.environ, **make_environment(settings)},
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


def test_the_port_for_monitoring_needs_no_key_and_has_nothing_else(
    start_service: Callable[[], ServiceProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLRM_MONITORING_PORT", "0")
    service = start_service()
    url = f"http://127.0.0.1:{service.monitoring_port}"
    wait_until(lambda: httpx.get(f"{url}/readyz").status_code == 200)
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    assert "dlrm_leads 1.0" in httpx.get(f"{url}/metrics").text
    assert httpx.get(f"{service.url}/metrics").status_code == 401
    assert httpx.get(f"{service.url}/readyz").status_code == 200
    key = {"Authorization": f"Bearer {service.admin_key}"}
    for path in ("/", "/v1/jobs", "/openapi.json", "/static/0/style/base.css", "/v1/session"):
        assert httpx.get(f"{url}{path}", headers=key).status_code == 404
    pretended = {"Host": f"127.0.0.1:{service.monitoring_port}"}
    assert httpx.get(f"{service.url}/metrics", headers=pretended).status_code == 401


def get_state(client: httpx.Client, job_id: str) -> str:
    return client.get(f"/v1/jobs/{job_id}").json()["state"]


def test_a_free_port_is_kept_at_the_next_start_unless_another_program_has_it(
    settings: Settings, tmp_path: Path
) -> None:
    ready = tmp_path / "ready.json"
    with closing(bind_as_before(settings, ready)) as first:
        port = get_port(first)
        ready.write_text(json.dumps({"url": f"http://127.0.0.1:{port}"}))
    with closing(bind_as_before(settings, ready)) as second:
        assert get_port(second) == port
        second.listen()
        with closing(bind_as_before(settings, ready)) as third:
            assert get_port(third) != port


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_variable_that_is_no_setting_is_warned_of_at_the_start(
    start_service: Callable[[], ServiceProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLRM_RESTART_DELAY", "1")
    served = start_service()
    served.process.send_signal(signal.SIGTERM)
    _, log = served.process.communicate()
    (line,) = [line for line in log.splitlines() if "unknown_setting" in line]
    assert "warning" in line
    assert "variable=DLRM_RESTART_DELAY" in line
    assert "did you mean DLRM_RESTART_DELAY_SECONDS?" in line


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


@pytest.mark.slow
def test_the_printed_link_signs_a_browser_in(start_service: Callable[[], ServiceProcess]) -> None:
    served = start_service()
    address, _, token = served.signin_link.partition("#token=")
    with httpx.Client(base_url=served.url) as browser:
        page = browser.get(address)
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert browser.post("/v1/session", json={"token": token}).status_code == 204
        assert browser.get("/v1/keys").status_code == 200


@on_sqlite
def test_a_second_service_on_a_state_directory_is_refused(settings: Settings) -> None:
    with lock_state_directory(settings.state_directory), pytest.raises(AlreadyServingError, match=str(os.getpid())):
        serve(settings)


def test_a_port_that_is_taken_is_told_with_what_to_set(settings: Settings, api: Api) -> None:
    port = api.services.settings.port
    same_port = settings.model_copy(update={"port": port, "state_directory": settings.state_directory / "another"})
    with pytest.raises(AddressError, match=rf"port {port}.*DLRM_PORT"):
        serve(same_port)


@on_sqlite
@pytest.mark.parametrize("way", ["the same path", "a link", "a linked directory"])
def test_a_second_service_on_an_sqlite_file_is_refused_whatever_its_state_directory(
    settings: Settings, tmp_path: Path, way: str
) -> None:
    file = get_sqlite_file(parse_database_url(settings.database_url))
    assert file is not None
    (tmp_path / "link.sqlite3").symlink_to(file)
    (tmp_path / "linked").symlink_to(file.parent)
    path = {
        "the same path": file,
        "a link": tmp_path / "link.sqlite3",
        "a linked directory": tmp_path / "linked" / file.name,
    }
    second = settings.model_copy(
        update={"state_directory": tmp_path / "another", "database_url": f"sqlite:///{path[way]}"}
    )
    with lock_state(settings):
        fault = rf"another service \(process {os.getpid()}\) is using the database .*DLRM_DATABASE_URL.*PostgreSQL"
        with pytest.raises(AlreadyServingError, match=fault):
            serve(second)
    with lock_state(second):
        assert (file.parent / f"{file.name}.lock").read_text() == str(os.getpid())


@on_postgresql
@pytest.mark.slow
def test_services_on_postgresql_share_a_state_directory_and_one_of_them_makes_the_admin_key(
    settings: Settings, tmp_path: Path
) -> None:
    environment = {**os.environ, **make_environment(settings)}
    command = [sys.executable, "-m", "cli", "serve", "--port", "0"]
    outputs = [tmp_path / f"output-{number}" for number in range(3)]
    services = [subprocess.Popen(command, env=environment, stdout=output.open("wb")) for output in outputs]
    try:
        wait_until(
            lambda: all("sign in" in output.read_text() for output in outputs) or any(each.poll() for each in services)
        )
        assert [each.poll() for each in services] == [None] * 3
        said = [output.read_text() for output in outputs]
        (key,) = (text.split("admin key (shown only now): ")[1].strip() for text in said if "admin key" in text)
        urls = [text.partition("serving on ")[2].splitlines()[0] for text in said]
        for url in urls:
            with make_client(url, key) as client:
                assert client.get("/v1/jobs").status_code == 200
        found = find_connection(state_directory=settings.state_directory)
        assert (found.url in urls, found.api_key) == (True, key)
    finally:
        for each in services:
            each.kill()
            each.wait()


@on_sqlite
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
