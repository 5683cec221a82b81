"""The service that is attacked: a process of its own, with keys of several owners and with running jobs."""

import json
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from benchmarks.service_load import LINES_PER_PUSH, make_push, make_service, wait_for
from tests.service.postgres import find_free_port
from tests.service.service_process import ServiceProcess

HOST = "127.0.0.1"
NUM_JOBS = 4
NUM_RANKS = 8
NUM_POINTS = 5000
"""Steps of the curve of the first job."""
LOG_BYTES = 4 * 2**20
NUM_FILES = 2000
"""Files of data, so that a pattern can match many."""
TRAINER = """\
#!/bin/sh
case "$2" in dlrm.programs.plan) exec {python} "$@" ;; esac
exec sleep 3600
"""
"""Trainer that makes plans, and does nothing in place of training."""
KEYS: dict[str, dict[str, Any]] = {
    "victim": {"role": "admin"},
    "attacker": {"role": "submitter"},
    "second attacker": {"role": "submitter"},
    "viewer": {"role": "viewer"},
    "revoked": {"role": "admin"},
    "expired": {"role": "admin"},
}


@dataclass
class Target:
    """A service, and what its attackers know of it."""

    directory: Path
    database_url: str | None
    port: int = field(default_factory=find_free_port)
    keys: dict[str, str] = field(default_factory=dict[str, str])
    jobs: list[str] = field(default_factory=list[str])
    """Running jobs of the first attacker; the first one has a curve and a log."""
    victims_job: str = ""
    ingest_paths: list[str] = field(default_factory=list[str])
    tokens: list[str] = field(default_factory=list[str])
    """Tokens of the attempts of `jobs`, and at the end the one of an attempt that was cancelled."""
    cookie: str = ""
    """Cookie of a session of the victim."""
    source: str = HOST
    """Address from which an attack comes."""
    _num_sources: int = 0
    _process: ServiceProcess | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def create(self) -> None:
        """Start the service for the first time, and make keys and jobs."""
        self._process = make_service(self.directory, self.database_url)
        self._process.port = self.port
        self._write_files()
        self.start()
        with self.open_client(self._process.admin_key) as admin:
            self._create_keys(admin)
        with self.open_client(self.keys["attacker"]) as attacker:
            for number in range(NUM_JOBS + 1):
                self._start_job(attacker, number)
            self._add_history(attacker)
            attacker.post(f"/v1/jobs/{self.jobs[-1]}/cancel").raise_for_status()
            ended = self.jobs.pop()
            wait_for(lambda: attacker.get(f"/v1/jobs/{ended}").json()["state"] == "CANCELLED")
        with self.open_client(self.keys["victim"]) as victim:
            self.victims_job = victim.post("/v1/jobs", json=make_document("victim")).raise_for_status().json()["id"]

    def start(self) -> None:
        """Start the process, on the same port and state as before, and wait until it accepts requests."""
        assert self._process is not None
        self._process.start()
        self._process.wait_until_ready()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def open_client(self, key: str | None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60.0)

    def take_new_address(self) -> None:
        """Let the next attack come from an address of its own, so that limits of the one before do not count."""
        self._num_sources += 1
        self.source = f"127.1.{self._num_sources // 250}.{1 + self._num_sources % 250}"

    def warm_up(self) -> None:
        """Send a request of each kind, so that what is made once only does not count as memory of an attack."""
        with self.open_client(self.keys["attacker"]) as client:
            headers = {"Idempotency-Key": "warm"}
            client.post("/v1/jobs", json=make_document("warm"), headers=headers).raise_for_status()
            client.post("/v1/jobs", json={"nme": "x"})
            client.post("/v1/session", json={"key": "x"})
            client.post(self.ingest_paths[0], json={})
            job = f"/v1/jobs/{self.jobs[0]}"
            logs = f"{job}/logs?rank=0"
            for path in ("/v1/jobs", job, f"{job}/metrics?limit=10", logs, "/metrics", "/openapi.json", "/", "/x"):
                client.get(path)

    def _write_files(self) -> None:
        data = self.directory / "data"
        (data / "many").mkdir()
        for number in range(NUM_FILES):
            (data / "many" / f"{number}.tsv").touch()
        (data / "link.tsv").symlink_to("/etc/passwd")
        (data / "loop").symlink_to(".")
        (self.directory / "python").write_text(TRAINER.format(python=sys.executable))

    def _create_keys(self, admin: httpx.Client) -> None:
        expiry = datetime.now(UTC) + timedelta(seconds=2)
        for name, fields in KEYS.items():
            body = {"name": name.replace(" ", "-"), **fields}
            if name == "expired":
                body["expires_at"] = expiry.isoformat()
            made = admin.post("/v1/keys", json=body).raise_for_status().json()
            self.keys[name] = made["key"]
            if name == "revoked":
                admin.delete(f"/v1/keys/{made['id']}").raise_for_status()
        with self.open_client(None) as browser:
            browser.post("/v1/session", json={"key": self.keys["victim"]}).raise_for_status()
            self.cookie = f"dlrm_session={browser.cookies['dlrm_session']}"
        with self.open_client(self.keys["expired"]) as late:
            wait_for(lambda: late.get("/v1/jobs").status_code == 401)

    def _start_job(self, client: httpx.Client, number: int) -> None:
        job = client.post("/v1/jobs", json=make_document(f"job-{number}")).raise_for_status().json()
        file = Path(job["run_directory"]) / "attempt-1" / "push.json"
        wait_for(file.exists)
        pushing = json.loads(file.read_text())
        self.jobs.append(job["id"])
        self.ingest_paths.append("/v1/ingest/" + pushing["url"].rpartition("/")[2])
        self.tokens.append(pushing["token"])

    def _add_history(self, client: httpx.Client) -> None:
        """Give the first job a curve and a log."""
        headers = {"Authorization": f"Bearer {self.tokens[0]}", "Content-Type": "application/json"}
        for first in range(1, NUM_POINTS + 1, LINES_PER_PUSH):
            body = make_push(0, first, LINES_PER_PUSH)
            client.post(self.ingest_paths[0], content=body, headers=headers).raise_for_status()
        directory = Path(client.get(f"/v1/jobs/{self.jobs[0]}").json()["run_directory"]) / "attempt-1"
        line = b"2026-01-01 a line of a log, as long as such lines are, and then again the same\n"
        (directory / "logs").mkdir(exist_ok=True)
        (directory / "logs" / "rank-0.log").write_bytes(line * (LOG_BYTES // len(line)))


def make_document(name: str, **changes: Any) -> dict[str, Any]:
    """Make a job document. changes: other values of its fields."""
    return {
        "name": name,
        "data": {"train": ["day_0.tsv"]},
        "batch": {"global_size": 64 * NUM_RANKS},
        "resources": {"workers_per_node": NUM_RANKS, "memory": f"{NUM_RANKS}GiB"},
        **changes,
    }
