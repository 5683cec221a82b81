"""A real service on a real database, with a trainer that keeps the contract and trains nothing."""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import uvicorn
from playwright.sync_api import Browser, sync_playwright

from service.app import create_app
from service.keys.roles import Role
from service.launchers.processes import find_marked, kill_all
from service.observability.logs import configure_logging
from service.serve import bound_socket
from service.services import Services
from service.settings import Settings
from tests.patience import PATIENCE_SECONDS, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
]
FAKE_TRAINER = Path(__file__).parent / "fake_trainer"
ROWS = "0\t" + "\t".join(["1"] * 39) + "\n"


def settings_in(directory: Path) -> Settings:
    """A machine with 4 cores and 4 GiB, two data files, and a script where the trainer's interpreter would be."""
    root = directory / "data"
    root.mkdir()
    for name in ("day_0.tsv", "day_1.tsv"):
        (root / name).write_text(ROWS)
    wrapper = directory / "python"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE_TRAINER}" "$@"\n')
    wrapper.chmod(0o755)
    return Settings(
        state_directory=directory / "state",
        data_roots=[str(root)],
        trainer_python=wrapper,
        num_cores=4,
        memory_bytes=4 * 2**30,
        num_gpus=0,
        port=0,
        reconcile_interval_seconds=0.05,
        grace_period_seconds=30.0,
        restart_delay_seconds=0.05,
    )


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Settings of one test. Nothing it has started is left running."""
    made = settings_in(tmp_path)
    yield made
    for attempt in made.runs_directory.glob("*/attempt-*"):
        kill_all(find_marked(attempt))


@pytest.fixture
def trainer_python(settings: Settings) -> Path:
    return settings.trainer_python


@pytest.fixture
def data_root(settings: Settings) -> Path:
    return Path(settings.data_roots[0])


def client_of(url: str, secret: str | None = None) -> httpx.Client:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_SECONDS)


@dataclass
class Api:
    """A service and clients of it, one a role."""

    url: str
    services: Services
    admin: httpx.Client
    submitter: httpx.Client
    viewer: httpx.Client
    anonymous: httpx.Client

    def client(self, secret: str | None) -> httpx.Client:
        return client_of(self.url, secret)

    def submit(self, **changes: Any) -> dict[str, Any]:
        """Submit a document that is fine but for `changes`."""
        response = self.submitter.post("/v1/jobs", json=document(**changes))
        assert response.status_code == 201, response.text
        return response.json()

    def wait_for(self, job_id: str, *states: str) -> dict[str, Any]:
        """The job, once it is in one of `states`."""

        def in_state() -> dict[str, Any] | None:
            job = self.viewer.get(f"/v1/jobs/{job_id}").json()
            return job if job["state"] in states else None

        return wait_until(in_state)


def document(behaviour: str = "wait", **changes: Any) -> dict[str, Any]:
    """The smallest document, for one rank."""
    base = {
        "data": {"train": ["day_*.tsv"]},
        "labels": {"behaviour": behaviour},
        "batch": {"global_size": 64},
        "resources": {"workers_per_node": 1, "memory": "1GiB"},
    }
    return base | changes


@contextmanager
def serving(settings: Settings, lifespan: str) -> Iterator[Api]:
    configure_logging("console")
    listening = bound_socket(settings)
    app = create_app(settings.model_copy(update={"port": listening.getsockname()[1]}))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan=lifespan))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    url = app.state.services.settings.url
    services: Services = app.state.services
    secrets = [services.keys.create(role.value, role).key for role in Role]
    viewer, submitter, admin = (client_of(url, secret) for secret in secrets)
    try:
        with viewer, submitter, admin, client_of(url) as anonymous:
            yield Api(url, services, admin, submitter, viewer, anonymous)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def api(settings: Settings) -> Iterator[Api]:
    """A service whose control loop rests: jobs stay as they are until a test looks after them."""
    with serving(settings, lifespan="off") as made:
        yield made


@pytest.fixture(scope="module")
def shared_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The same for all tests of a module that do not mind what the others leave in it."""
    with serving(settings_in(tmp_path_factory.mktemp("shared")), lifespan="off") as made:
        yield made


@pytest.fixture
def live_api(settings: Settings) -> Iterator[Api]:
    """A service with its control loop."""
    with serving(settings, lifespan="on") as made:
        yield made


@pytest.fixture
def make_document() -> Callable[..., dict[str, Any]]:
    return document


@pytest.fixture
def eventually() -> Callable[..., Any]:
    return wait_until


@pytest.fixture
def is_running() -> Callable[[int], bool]:
    """Whether a process is alive, zombies not counted."""

    def look(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return look


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
