"""Retention over many jobs while some run: `python -m benchmarks.service_retention`.

Starts a real service (SQLite unless `--database-url` names another database) with jobs whose processes only sleep.
Adds ended jobs, evenly over 100 days, with some events each. Then starts the service again with a rule for a part of
them, and asks for a job and for a list of 50, again and again, before and meanwhile. At the end, checks that the rule
took nothing else, and that the running jobs have their processes still.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, insert, select

from benchmarks.service_load import wait_for
from service.database import Database
from service.ids import new_id
from service.store.models import Event, Job
from service.times import now
from tests.service.api import make_client
from tests.service.service_process import ServiceProcess, find_launch_processes

DAYS = 100
NUM_OWNERS = 50
NUM_EVENTS = 4
CHUNK = 2000
PROBE_SECONDS = 0.1
BASELINE_SECONDS = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs that have ended (default: 100,000)")
    parser.add_argument("--running", type=int, default=20, help="jobs that run (default: 20)")
    parser.add_argument("--directories", type=int, default=1000, help="ended jobs with files (default: 1,000)")
    parser.add_argument("--gone", type=int, default=10_000, help="jobs that the rule chooses (default: 10,000)")
    parser.add_argument("--seconds", type=float, default=240.0, help="longest time of the removal (default: 240)")
    parser.add_argument("--database-url", help="SQLAlchemy URL of an empty database (default: an SQLite file)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for line in measure(Path(directory), options):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


def measure(directory: Path, options: argparse.Namespace) -> Iterator[str]:
    url = options.database_url or f"sqlite:///{directory / 'state' / 'service.sqlite3'}"
    settings = make_environment(directory, url, options.running)
    with ServiceProcess(directory / "first", settings) as service:
        key = service.admin_key
        with make_client(service.url, key) as client:
            running = [submit(client) for _ in range(options.running)]
            wait_for(lambda: all(get(client, job_id)["state"] == "RUNNING" for job_id in running))
            runs = Path(get(client, running[0])["run_directory"]).parent
        processes = {process.pid: process.create_time() for process in find_launch_processes(runs)}
    database = Database(url)
    begun = time.perf_counter()
    fill(database, running[0], options.jobs, options.directories)
    yield f"{options.jobs:,} ended jobs added in {time.perf_counter() - begun:.0f} s"
    with ServiceProcess(directory / "second", settings) as service, make_client(service.url, key) as client:
        yield f"without retention: {probe(client, running[0], lambda: False, BASELINE_SECONDS)}"
        days = DAYS * (1 - options.gone / options.jobs)
        begun = time.perf_counter()
        preview = client.get("/v1/retention", params={"days": days}).json()
        yield f"dry run: {preview['num_jobs']:,} jobs, in {time.perf_counter() - begun:.2f} s"
    with (
        ServiceProcess(directory / "third", {**settings, "DLRM_RETENTION_DAYS": str(days)}) as service,
        make_client(service.url, key) as client,
    ):
        begun = time.perf_counter()

        def is_done() -> bool:
            return find_oldest_days(database) <= days and count(database, Job.deleting_at) == 0

        meanwhile = probe(client, running[0], is_done, options.seconds)
        seconds = time.perf_counter() - begun
        num_gone = options.jobs + len(running) - count(database, Job.id)
        yield f"removed {num_gone:,} jobs in {seconds:.0f} s, {num_gone / seconds:.0f} a second"
        yield f"meanwhile: {meanwhile}"
        yield from check(database, client, running, runs, processes, days)
        for job_id in running:
            client.post(f"/v1/jobs/{job_id}/cancel")
        wait_for(lambda: not find_launch_processes(runs))
    database.close()


def check(
    database: Database,
    client: httpx.Client,
    running: list[str],
    runs: Path,
    processes: dict[int, float],
    days: float,
) -> Iterator[str]:
    """Check that the running jobs are as they were, and that all younger jobs are still there."""
    for job_id in running:
        job = get(client, job_id)
        assert (job["state"], job["num_attempts"]) == ("RUNNING", 1), job
    assert {process.pid: process.create_time() for process in find_launch_processes(runs)} == processes
    left = find_oldest_days(database)
    yield f"{len(running)} running jobs have their processes; the oldest job left ended {left:.2f} days ago ({days:g})"


def find_oldest_days(database: Database) -> float:
    """Return how many days ago the oldest job ended that is not being deleted."""
    with database.read() as session:
        oldest = session.scalars(select(func.min(Job.finished_at)).where(Job.deleting_at.is_(None))).one()
    return 0.0 if oldest is None else (now() - oldest).total_seconds() / 86_400


def make_environment(directory: Path, url: str, num_cores: int) -> dict[str, str]:
    """Make the variables of a service whose trainer sleeps."""
    trainer = directory / "sleep"
    trainer.write_text("#!/bin/sh\nexec sleep 3600\n")
    trainer.chmod(0o755)
    (directory / "rows.tsv").write_text("0\t" + "\t".join(["1"] * 39) + "\n")
    return {
        "DLRM_STATE_DIRECTORY": str(directory / "state"),
        "DLRM_DATABASE_URL": url,
        "DLRM_DATA_ROOTS": str(directory),
        "DLRM_TRAINER_PYTHON": str(trainer),
        "DLRM_NUM_CORES": str(num_cores),
        "DLRM_MEMORY_BYTES": str(2**40),
        "DLRM_REQUESTS_PER_SECOND": "100000",
        # The trainer takes no notice of a stop request.
        "DLRM_GRACE_PERIOD_SECONDS": "0",
    }


def submit(client: httpx.Client) -> str:
    document = {
        "data": {"train": ["rows.tsv"]},
        "batch": {"global_size": 64},
        "resources": {"workers_per_node": 1, "memory": "1GiB"},
    }
    response = client.post("/v1/jobs", json=document)
    response.raise_for_status()
    return response.json()["id"]


def get(client: httpx.Client, job_id: str) -> dict[str, Any]:
    return client.get(f"/v1/jobs/{job_id}").json()


def fill(database: Database, template: str, num_jobs: int, num_directories: int) -> None:
    """Add ended jobs like `template`, evenly over DAYS days; the oldest ones have files."""
    with database.read() as session:
        row = session.get_one(Job, template)
        values = {column.name: getattr(row, column.name) for column in Job.__table__.columns}
    start, runs = now() - timedelta(days=DAYS), Path(values["run_directory"]).parent
    for first in range(0, num_jobs, CHUNK):
        jobs: list[dict[str, object]] = []
        for number in range(first, min(first + CHUNK, num_jobs)):
            job_id, finished_at = new_id("job"), start + timedelta(days=DAYS * number / num_jobs)
            changes = {
                "id": job_id,
                "state": "SUCCEEDED",
                "owner": f"owner-{number % NUM_OWNERS}",
                "created_at": finished_at - timedelta(hours=1),
                "finished_at": finished_at,
                "run_directory": str(runs / job_id),
            }
            jobs.append(values | changes)
            if number < num_directories:
                checkpoint = runs / job_id / "checkpoints" / "step-1"
                checkpoint.mkdir(parents=True)
                for name in range(10):
                    (checkpoint / f"part-{name}").write_bytes(bytes(1000))
        base = {"actor": "bench", "kind": "state", "message": "", "details": {}}
        with database.write() as session:
            session.execute(insert(Job), jobs)
            events = [
                {**base, "job_id": job["id"], "time": job["finished_at"]} for job in jobs for _ in range(NUM_EVENTS)
            ]
            session.execute(insert(Event), events)


def count(database: Database, column: Any) -> int:
    """Count the jobs that have a value in a column."""
    with database.read() as session:
        return session.scalars(select(func.count(column))).one()


def probe(client: httpx.Client, job_id: str, is_over: Callable[[], bool], max_seconds: float) -> str:
    """Ask for a job and for a list, again and again, and describe the times of the answers."""
    paths = {"a job": f"/v1/jobs/{job_id}", "a list of 50": "/v1/jobs?limit=50"}
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    end, next_look = time.perf_counter() + max_seconds, time.perf_counter() + 2.0
    while time.perf_counter() < end:
        for name, path in paths.items():
            begun = time.perf_counter()
            assert client.get(path).status_code == 200
            seconds[name].append(time.perf_counter() - begun)
        if time.perf_counter() > next_look:
            if is_over():
                break
            next_look = time.perf_counter() + 2.0
        time.sleep(PROBE_SECONDS)
    return "; ".join(f"{name} {describe(values)}" for name, values in seconds.items())


def describe(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p50, p95, largest = (1000 * ordered[ceil(share * len(ordered)) - 1] for share in (0.5, 0.95, 1.0))
    return f"p50 {p50:.0f}, p95 {p95:.0f}, largest {largest:.0f} ms ({len(ordered)})"


if __name__ == "__main__":
    main()
