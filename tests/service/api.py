"""A real service on a real database, with a fake trainer; clients of it."""

import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from service.access.principal import Role
from service.app import Services, create_app
from service.observability.logs import configure_logging
from service.serve import bind_socket, make_server_config
from service.settings import Settings
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.service.documented import make_check

FAKE_TRAINER = Path(__file__).parent / "fake_trainer"
TEAM = "team"
"""Owner of the keys of all roles."""
ROWS = "0\t" + "\t".join(["1"] * 39) + "\n"


def write_fake_python(path: Path) -> Path:
    """Write a script to `path` that runs the fake trainer where the service runs the trainer's interpreter."""
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE_TRAINER}" "$@"\n')
    path.chmod(0o755)
    return path


def write_data(directory: Path) -> Path:
    """Write two data files, and return the directory that has them."""
    directory.mkdir(exist_ok=True)
    for name in ("day_0.tsv", "day_1.tsv"):
        (directory / name).write_text(ROWS)
    return directory


def make_settings(directory: Path, database_url: str) -> Settings:
    """Make the settings of a service in `directory`: 4 cores, 4 GiB, two data files and the fake trainer."""
    return Settings(
        state_directory=directory / "state",
        database_url=database_url,
        data_roots=[str(write_data(directory / "data"))],
        trainer_python=write_fake_python(directory / "python"),
        num_cores=4,
        memory_bytes=4 * 2**30,
        num_gpus=0,
        port=0,
        reconcile_interval_seconds=0.1,
        grace_period_seconds=30.0,
        restart_delay_seconds=0.05,
        failures_per_minute=1e6,
    )


def make_environment(settings: Settings) -> dict[str, str]:
    """Make the environment variables of a service with these settings."""
    return dump_environment(settings.model_dump(mode="json"))


def dump_environment(values: dict[str, Any]) -> dict[str, str]:
    """Write the values of settings as environment variables."""
    lists = {name: "," for name, value in values.items() if isinstance(value, list)} | {"data_roots": os.pathsep}
    texts = {name: lists[name].join(value) if name in lists else value for name, value in values.items()}
    return {f"DLRM_{name.upper()}": str(value) for name, value in texts.items() if value is not None}


def make_document(behaviour: str = "wait", **changes: Any) -> dict[str, Any]:
    """Make the smallest job document, for one rank. behaviour: name of a function of the fake trainer."""
    base = {
        "data": {"train": ["day_*.tsv"]},
        "labels": {"behaviour": behaviour},
        "batch": {"global_size": 64},
        "resources": {"workers_per_node": 1, "memory": "1GiB"},
    }
    return base | changes


def make_client(
    url: str, api_key: str | None = None, check: Callable[[httpx.Response], None] | None = None
) -> httpx.Client:
    """Make a client of a service. check: called with every response."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    hooks = {"response": [check]} if check else {}
    # Nothing is encrypted, and certificates take longer to load than most requests.
    return httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_SECONDS, event_hooks=hooks, verify=False)


_checks: list[Callable[[httpx.Response], None]] = []


def get_check(app: FastAPI) -> Callable[[httpx.Response], None]:
    """Return the check of responses, made of the first service: no setting changes the document, which takes long."""
    if not _checks:
        _checks.append(make_check(app.openapi()))
    return _checks[0]


@dataclass
class Api:
    """A running service, its parts, and one client of its REST API for each role."""

    url: str
    services: Services
    admin: httpx.Client
    submitter: httpx.Client
    viewer: httpx.Client
    anonymous: httpx.Client
    check: Callable[[httpx.Response], None]
    """Check that a response is documented, which all these clients make."""

    def make_client(self, api_key: str | None) -> httpx.Client:
        return make_client(self.url, api_key, self.check)

    def submit(self, **changes: Any) -> dict[str, Any]:
        """Submit a valid document with `changes`, and return the job."""
        response = self.submitter.post("/v1/jobs", json=make_document(**changes))
        assert response.status_code == 201, response.text
        return response.json()

    def wait_for(self, job_id: str, *states: str) -> dict[str, Any]:
        """Wait until the job is in one of `states`, and return it."""

        def find_job() -> dict[str, Any] | None:
            job = self.viewer.get(f"/v1/jobs/{job_id}").json()
            return job if job["state"] in states else None

        return wait_until(find_job)


class PromptServer(uvicorn.Server):
    """Server that ends once it is told: uvicorn looks for it every tenth of a second, and waits another one."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._is_serving = threading.Event()

    async def main_loop(self) -> None:
        self._loop, self._is_ended = asyncio.get_running_loop(), asyncio.Event()
        await self.on_tick(0)
        self._is_serving.set()
        await self._is_ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        # An idle connection is gone after one turn of the loop; one with a request ends with it.
        await asyncio.sleep(0.001)
        await self._wait_tasks_to_complete()
        await self.lifespan.shutdown()

    def wait(self) -> None:
        """Wait until it serves, in another thread."""
        assert self._is_serving.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        """End it, from another thread."""
        self._loop.call_soon_threadsafe(self._is_ended.set)


@contextmanager
def serve_api(settings: Settings, *, runs_control_loop: bool) -> Iterator[Api]:
    """Run a service in a thread. Without its control loop, jobs stay as they are until a test runs a round."""
    level = logging.getLogger().level
    configure_logging("console")
    listening = bind_socket(settings)
    app = create_app(settings.model_copy(update={"port": listening.getsockname()[1]}))
    server = PromptServer(
        make_server_config(app, lifespan="on" if runs_control_loop else "off", trusted_proxies=settings.trusted_proxies)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    server.wait()
    services: Services = app.state.services
    url = services.settings.url
    api_keys = [services.keys.create(role.value, role, owner=TEAM).key for role in Role]
    check = get_check(app)
    viewer, submitter, admin = (make_client(url, api_key, check) for api_key in api_keys)
    try:
        with viewer, submitter, admin, make_client(url, check=check) as anonymous:
            yield Api(url, services, admin, submitter, viewer, anonymous, check)
    finally:
        server.end()
        thread.join()
        services.key_uses.close()
        services.database.close()
        logging.getLogger().setLevel(level)
