"""Time from the death of a leader to the next start of a job: `python -m benchmarks.failover --database-url URL`.

Starts three processes of a service on one empty PostgreSQL database. Then, again and again: a job is queued and held,
the process that leads is killed, the job is released through another one at that moment, and the time until it has left
the queue is taken. The killed process is started again before the next round. Jobs run a program that does nothing.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from sqlalchemy import create_engine, text

from benchmarks.processes import find_free_port
from benchmarks.service_load import wait_for

NUM_PROCESSES = 3
POLL_SECONDS = 0.02
DOCUMENT = {"data": {"train": ["day_0.tsv"]}, "batch": {"global_size": 64}, "resources": {"workers_per_node": 1}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database-url", required=True, help="SQLAlchemy URL of an empty PostgreSQL database")
    parser.add_argument("--rounds", type=int, default=10, help="leaders that are killed (default: 10)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        services = [Service(Path(name), number, arguments.database_url) for number in range(NUM_PROCESSES)]
        try:
            services[0].start()
            headers = {"Authorization": f"Bearer {services[0].read_admin_key()}"}
            for service in services[1:]:
                service.start()
            seconds = [measure_failover(services, headers, arguments.database_url) for _ in range(arguments.rounds)]
        finally:
            for service in services:
                service.kill()
    times = ", ".join(f"{value:.2f}" for value in sorted(seconds))
    print(f"leader killed to next start: median {statistics.median(seconds):.2f} s, all {times}")  # noqa: T201


class Service:
    """One process of the service, on a port of its own."""

    def __init__(self, directory: Path, number: int, database_url: str) -> None:
        trainer, data = directory / "python", directory / "data"
        data.mkdir(exist_ok=True)
        (data / "day_0.tsv").write_text("0\t" + "\t".join(["1"] * 39) + "\n")
        trainer.write_text("#!/bin/sh\nexec sleep 1\n")
        trainer.chmod(0o755)
        self._ready, self._log = directory / f"ready-{number}", directory / f"log-{number}"
        self._port = find_free_port()
        self._environment = os.environ | {
            "DLRM_PORT": self._port,
            "DLRM_STATE_DIRECTORY": str(directory / "state"),
            "DLRM_DATA_ROOTS": str(data),
            "DLRM_TRAINER_PYTHON": str(trainer),
            "DLRM_NUM_CORES": "1000",
            "DLRM_MEMORY_BYTES": str(2**40),
            "DLRM_DATABASE_URL": database_url,
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the process, and wait until it accepts requests."""
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "cli", "serve", "--ready-file", str(self._ready)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        wait_for(self._ready.exists)

    def read_admin_key(self) -> str:
        return httpx.Response(200, content=self._ready.read_bytes()).json()["admin_key"]

    def kill(self) -> None:
        """Kill the process without any warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def measure_failover(services: list[Service], headers: dict[str, str], database_url: str) -> float:
    """Kill the leader, and return the seconds until a job starts that is released at that moment."""
    leader = find_leader(services, database_url)
    other = next(service for service in services if service is not leader)
    with httpx.Client(base_url=other.url, headers=headers, timeout=30.0) as client:
        job = client.post("/v1/jobs", json={**DOCUMENT, "name": "failover"}).raise_for_status().json()["id"]
        client.post(f"/v1/jobs/{job}/hold").raise_for_status()
        leader.kill()
        killed_at = time.monotonic()
        client.post(f"/v1/jobs/{job}/release").raise_for_status()
        while client.get(f"/v1/jobs/{job}").raise_for_status().json()["state"] == "QUEUED":
            time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - killed_at
    leader.start()
    return seconds


def find_leader(services: list[Service], database_url: str) -> Service:
    """Find the leading process, by the name that it has left in the database."""
    engine = create_engine(database_url)
    found: list[Service] = []

    def look() -> bool:
        with engine.connect() as connection:
            owner = str(connection.execute(text("SELECT owner FROM leadership")).scalar_one())
        found[:] = [service for service in services if service.process and str(service.process.pid) in owner]
        return bool(found)

    wait_for(look)
    engine.dispose()
    return found[0]


if __name__ == "__main__":
    main()
