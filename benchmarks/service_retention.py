"""Retention over many jobs while some run: `python -m benchmarks.service_retention`.

Starts a real service (SQLite unless `--database-url` names another database) with jobs whose processes only sleep.
Adds ended jobs, evenly over 100 days, with some events each. Then starts the service again with a rule for a part of
them, and asks for a job and for a list of 50, again and again, before and meanwhile. At the end, checks that the rule
took nothing else, and that the running jobs have their processes still.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, select

from benchmarks.service_load import find_percentiles, kill_jobs, make_service, say, start_jobs, wait_for
from service.database import Database
from service.store.models import Job
from service.times import now
from tests.service.api import make_client
from tests.service.seeding import ROWS_AT_ONCE, add_events, add_jobs, make_job
from tests.service.service_process import find_launch_processes

DAYS = 100
NUM_OWNERS = 50
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
        try:
            measure(Path(directory), options)
        finally:
            kill_jobs(Path(directory))


def measure(directory: Path, options: argparse.Namespace) -> None:
    service = make_service(directory, options.database_url)
    service.environment["DLRM_REQUESTS_PER_SECOND"] = "100000"
    runs = directory / "state" / "runs"
    with service:
        key = service.admin_key
        with make_client(service.url, key) as client:
            running = [job.job_id for job in start_jobs(client, 1, 0, options.running)]
            wait_for(lambda: all(get(client, job_id)["state"] == "RUNNING" for job_id in running))
        processes = {process.pid: process.create_time() for process in find_launch_processes(runs)}
    database = Database(options.database_url or f"sqlite:///{directory}/state/service.sqlite3")
    begun = time.perf_counter()
    fill(database, runs, options.jobs, options.directories)
    say(f"{options.jobs:,} ended jobs added in {time.perf_counter() - begun:.0f} s")
    with service, make_client(service.url, key) as client:
        say(f"without retention: {probe(client, running[0], lambda: False, BASELINE_SECONDS)}")
        days = DAYS * (1 - options.gone / options.jobs)
        begun = time.perf_counter()
        preview = client.get("/v1/retention", params={"days": days}).json()
        say(f"dry run: {preview['num_jobs']:,} jobs, in {time.perf_counter() - begun:.2f} s")
    service.environment["DLRM_RETENTION_DAYS"] = str(days)
    with service, make_client(service.url, key) as client:
        begun = time.perf_counter()

        def is_done() -> bool:
            return find_oldest_days(database) <= days and count(database, Job.deleting_at) == 0

        meanwhile = probe(client, running[0], is_done, options.seconds)
        seconds = time.perf_counter() - begun
        num_gone = options.jobs + len(running) - count(database, Job.id)
        say(f"removed {num_gone:,} jobs in {seconds:.0f} s, {num_gone / seconds:.0f} a second")
        say(f"meanwhile: {meanwhile}")
        for job_id in running:
            job = get(client, job_id)
            assert (job["state"], job["num_attempts"]) == ("RUNNING", 1), job
        assert {process.pid: process.create_time() for process in find_launch_processes(runs)} == processes
        left = find_oldest_days(database)
        say(f"{len(running)} running jobs have their processes; the oldest left ended {left:.2f} days ago ({days:g})")
    database.close()


def find_oldest_days(database: Database) -> float:
    """Return how many days ago the oldest job ended that is not being deleted."""
    with database.read() as session:
        oldest = session.scalars(select(func.min(Job.finished_at)).where(Job.deleting_at.is_(None))).one()
    return 0.0 if oldest is None else (now() - oldest).total_seconds() / 86_400


def get(client: httpx.Client, job_id: str) -> dict[str, Any]:
    return client.get(f"/v1/jobs/{job_id}").json()


def fill(database: Database, runs: Path, num_jobs: int, num_directories: int) -> None:
    """Add ended jobs, evenly over DAYS days; the oldest ones have files. Every job gets events, running ones too."""
    rows, start = random.Random(7), now() - timedelta(days=DAYS)
    for first in range(0, num_jobs, ROWS_AT_ONCE):
        jobs: list[dict[str, Any]] = []
        for number in range(first, min(first + ROWS_AT_ONCE, num_jobs)):
            job = make_job(rows, number)
            finished_at = start + timedelta(days=DAYS * number / num_jobs)
            changes = {"state": "SUCCEEDED", "owner": f"owner-{number % NUM_OWNERS}", "finished_at": finished_at}
            jobs.append(job | changes | {"run_directory": str(runs / job["id"])})
            if number < num_directories:
                checkpoint = runs / job["id"] / "checkpoints" / "step-1"
                checkpoint.mkdir(parents=True)
                for name in range(10):
                    (checkpoint / f"part-{name}").write_bytes(bytes(1000))
        with database.write() as session:
            add_jobs(session, jobs)
    with database.write() as session:
        add_events(session)


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
    p50, p95, largest = find_percentiles(seconds, 0.5, 0.95, 1.0)
    return f"p50 {p50:.0f}, p95 {p95:.0f}, largest {largest:.0f} ms ({len(seconds)})"


if __name__ == "__main__":
    main()
