"""CPU and answer times of a service with many jobs of the past: `python -m benchmarks.service_scale`.

Fills a database (SQLite unless `--database-url` names an empty one) with jobs, four events each, and one running job of
many steps; then starts a real service on it. First each kind of request is sent alone, and the CPU seconds of the
service's process are divided by their number; what it uses without requests is subtracted. Then all kinds are sent in
turn, `--rate` requests a second, in several runs: the times until the answer has come, as a client on the same machine
measures them, and the median of the runs. The CPU of a PostgreSQL server is not counted.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from sqlalchemy import delete, func, select

from benchmarks.service_load import Connection, Result, find_percentiles, make_service, say
from service.database import Database
from service.database.migrate import migrate
from service.keys.models import ApiKey
from service.store.models import Job
from service.store.states import JobState
from tests.service.seeding import seed
from tests.service.service_process import ServiceProcess

NUM_CONNECTIONS = 20
SETTLE_SECONDS = 5.0
"""Time after the start in which a service describes its API and looks for work."""
IDLE_SECONDS = 5.0


def list_kinds(long_job: str, waiting_job: str) -> dict[str, str]:
    """Return the paths of all kinds of requests by their names. waiting_job: the last job of the queue."""
    job = f"/v1/jobs/{long_job}"
    return {
        "50 jobs": "/v1/jobs",
        "200 jobs": "/v1/jobs?limit=200",
        "50 waiting jobs": "/v1/jobs?state=QUEUED",
        "jobs of a state, an owner and a time": "/v1/jobs?state=FAILED&owner=ads&created_after=2026-02-01",
        "jobs with a label": "/v1/jobs?label=sweep:sweep-3",
        "text that few jobs have": "/v1/jobs?q=weep-77",
        "text that no job has": "/v1/jobs?q=nothing-like-it",
        "labels": "/v1/labels?name=sweep&limit=50",
        "numbers of all jobs": "/v1/facets",
        "numbers of jobs with a label": "/v1/facets?label=team:ads",
        "running job": job,
        "waiting job": f"/v1/jobs/{waiting_job}",
        "events": f"{job}/events",
        "curve of the loss, 800 points": f"{job}/curves?names=loss&resolution=800",
        "page of 1,000 steps": f"{job}/metrics?kind=step",
        "liveness": "/healthz",
    }


class Load:
    """Clients of one service, with a connection each."""

    def __init__(self, service: ServiceProcess) -> None:
        self._process = psutil.Process(service.pid)
        self._connections = [Connection(service.url, service.admin_key) for _ in range(NUM_CONNECTIONS)]

    async def measure_idle(self) -> float:
        """Return the CPU seconds that the service uses in one second without requests."""
        before = self._read_cpu_seconds()
        await asyncio.sleep(IDLE_SECONDS)
        return (self._read_cpu_seconds() - before) / IDLE_SECONDS

    async def measure_cpu(self, path: str, number: int, idle: float) -> tuple[float, int]:
        """Return the CPU seconds of one request of a path, the mean of `number` one after the other, and its bytes."""
        result = Result(path)
        await self._connections[0].request(result, "GET", path)
        start, before = time.perf_counter(), self._read_cpu_seconds()
        for _ in range(number):
            await self._connections[0].request(result, "GET", path)
        used = self._read_cpu_seconds() - before - idle * (time.perf_counter() - start)
        assert set(result.statuses) == {200}, result
        return used / number, result.num_bytes

    async def send_all(self, kinds: dict[str, str], rate: float, seconds: float) -> list[Result]:
        """Send the kinds in turn, `rate` requests a second, however late the answers are."""
        results, paths = list(map(Result, kinds)), list(kinds.values())
        free = asyncio.Queue[Connection]()
        for connection in self._connections:
            free.put_nowait(connection)

        async def send(number: int) -> None:
            started = time.perf_counter()
            connection = await free.get()
            path, result = paths[number % len(paths)], results[number % len(paths)]
            await connection.request(result, "GET", path)
            result.seconds[-1] = time.perf_counter() - started
            free.put_nowait(connection)

        begin = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(int(rate * seconds)):
                await asyncio.sleep(begin + number / rate - time.perf_counter())
                tasks.create_task(send(number))
        return results

    def _read_cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


async def measure(service: ServiceProcess, kinds: dict[str, str], arguments: argparse.Namespace) -> None:
    load = Load(service)
    await asyncio.sleep(SETTLE_SECONDS)
    idle = await load.measure_idle()
    say(f"without requests: {100 * idle:.1f} % of a core")
    say("| request | CPU, ms | bytes |")
    say("|---|---|---|")
    for name, path in kinds.items():
        costs = [await load.measure_cpu(path, arguments.requests, idle) for _ in range(arguments.runs)]
        seconds, num_bytes = map(statistics.median, zip(*costs, strict=True))
        say(f"| {name} | {1000 * seconds:.2f} | {num_bytes:,.0f} |")
    runs = [await load.send_all(kinds, arguments.rate, arguments.seconds) for _ in range(arguments.runs)]
    say(f"| of a mix of {arguments.rate:g}/s | p50, ms | p95, ms |")
    say("|---|---|---|")
    for number, name in enumerate(kinds):
        p50s, p95s = zip(*(find_percentiles(run[number].seconds, 0.5, 0.95) for run in runs), strict=True)
        say(f"| {name} | {statistics.median(p50s):.1f} | {statistics.median(p95s):.1f} |")


def fill(directory: Path, arguments: argparse.Namespace) -> tuple[str, str]:
    """Fill the database, unless it has jobs; return the ids of the running job and of the last one of the queue."""
    directory.joinpath("state").mkdir(mode=0o700, parents=True, exist_ok=True)
    for stale in directory.glob("ready-*.json"):
        stale.unlink()
    database = Database(arguments.database_url or f"sqlite:///{directory}/state/service.sqlite3")
    migrate(database)
    with database.write() as session:
        # The service makes an admin key at a start where there is none.
        session.execute(delete(ApiKey))
        is_filled = session.scalar(select(Job.id).limit(1)) is not None
    if not is_filled:
        start = time.perf_counter()
        seed(database, arguments.jobs, arguments.steps)
        say(f"{arguments.jobs:,} jobs in {time.perf_counter() - start:.0f} s")
    with database.read() as session:
        running, waiting = (
            session.scalars(select(func.max(Job.id)).where(Job.state == state)).one()
            for state in (JobState.RUNNING, JobState.QUEUED)
        )
    database.close()
    return running, waiting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of the long job")
    parser.add_argument("--requests", type=int, default=100, help="requests of one kind whose CPU is measured")
    parser.add_argument("--rate", type=float, default=100.0, help="requests of the mix in a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a run of the mix")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="keeps the database, for a further run (default: temporary)")
    parser.add_argument("--database-url", help="an empty database (default: SQLite in a temporary directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = arguments.directory or Path(name)
        long_job, waiting_job = fill(directory, arguments)
        service = make_service(directory, arguments.database_url)
        service.environment["DLRM_REQUESTS_PER_SECOND"] = "100000"
        with service:
            asyncio.run(measure(service, list_kinds(long_job, waiting_job), arguments))
    say(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
