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
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import delete

from benchmarks.service_load import Connection, Result, make_service
from service.database import Database
from service.database.migrate import migrate
from service.keys.models import ApiKey
from service.store.filters import JobFilter
from service.store.job_lists import JobLists
from service.store.states import JobState
from tests.service.seeding import seed
from tests.service.service_process import ServiceProcess

NUM_CONNECTIONS = 20
IDLE_SECONDS = 5.0
HURRY = {"DLRM_REQUESTS_PER_SECOND": "100000"}


@dataclass(frozen=True)
class Kind:
    """One kind of request."""

    name: str
    path: str


def list_kinds(long_job: str, waiting_job: str) -> list[Kind]:
    """List the kinds of requests. waiting_job: the last job of the queue."""
    job = f"/v1/jobs/{long_job}"
    return [
        Kind("50 jobs", "/v1/jobs"),
        Kind("200 jobs", "/v1/jobs?limit=200"),
        Kind("50 waiting jobs", "/v1/jobs?state=QUEUED"),
        Kind("jobs of a state, an owner and a time", "/v1/jobs?state=FAILED&owner=ads&created_after=2026-02-01"),
        Kind("jobs with a label", "/v1/jobs?label=sweep:sweep-3"),
        Kind("text that few jobs have", "/v1/jobs?q=weep-77"),
        Kind("text that no job has", "/v1/jobs?q=nothing-like-it"),
        Kind("labels", "/v1/labels?name=sweep&limit=50"),
        Kind("running job", job),
        Kind("waiting job", f"/v1/jobs/{waiting_job}"),
        Kind("events", f"{job}/events"),
        Kind("curve of the loss, 800 points", f"{job}/curves?names=loss&resolution=800"),
        Kind("page of 1,000 steps", f"{job}/metrics?kind=step"),
        Kind("liveness", "/healthz"),
    ]


class Load:
    """Clients of one service, with a connection each."""

    def __init__(self, service: ServiceProcess) -> None:
        self._process = psutil.Process(service.pid)
        self._connections = [Connection(service.url, service.admin_key) for _ in range(NUM_CONNECTIONS)]

    async def request(self, kind: Kind) -> Result:
        """Send one request and return its result."""
        result = Result(kind.name)
        await self._connections[0].request(result, "GET", kind.path)
        return result

    async def measure_idle(self) -> float:
        """Return the CPU seconds that the service uses in one second without requests."""
        before = self._read_cpu_seconds()
        await asyncio.sleep(IDLE_SECONDS)
        return (self._read_cpu_seconds() - before) / IDLE_SECONDS

    async def measure_cpu(self, kind: Kind, number: int, idle: float) -> float:
        """Return the CPU seconds of one request of a kind, the mean of `number`, one after the other."""
        result = Result(kind.name)
        await self._connections[0].request(result, "GET", kind.path)
        start, before = time.perf_counter(), self._read_cpu_seconds()
        for _ in range(number):
            await self._connections[0].request(result, "GET", kind.path)
        used = self._read_cpu_seconds() - before - idle * (time.perf_counter() - start)
        assert set(result.statuses) == {200}, result
        return used / number

    async def send_all(self, kinds: list[Kind], rate: float, seconds: float) -> list[Result]:
        """Send the kinds in turn, `rate` requests a second, however late the answers are."""
        results = [Result(kind.name) for kind in kinds]
        free = asyncio.Queue[Connection]()
        for connection in self._connections:
            free.put_nowait(connection)

        async def send(number: int) -> None:
            started = time.perf_counter()
            connection = await free.get()
            kind, result = kinds[number % len(kinds)], results[number % len(kinds)]
            await connection.request(result, "GET", kind.path)
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


def find_percentile(seconds: list[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(service: ServiceProcess, kinds: list[Kind], arguments: argparse.Namespace) -> None:
    load = Load(service)
    idle = await load.measure_idle()
    _print(f"without requests: {100 * idle:.1f} % of a core")
    _print("| request | CPU, ms | bytes |")
    _print("|---|---|---|")
    for kind in kinds:
        costs = [await load.measure_cpu(kind, arguments.requests, idle) for _ in range(arguments.runs)]
        num_bytes = (await load.request(kind)).num_bytes
        _print(f"| {kind.name} | {1000 * statistics.median(costs):.2f} | {num_bytes:,} |")
    runs = [await load.send_all(kinds, arguments.rate, arguments.seconds) for _ in range(arguments.runs)]
    _print(f"| of a mix of {arguments.rate:g}/s | p50, ms | p95, ms |")
    _print("|---|---|---|")
    for number, kind in enumerate(kinds):
        medians = [
            statistics.median(1000 * find_percentile(run[number].seconds, share) for run in runs)
            for share in (0.5, 0.95)
        ]
        _print(f"| {kind.name} | {medians[0]:.1f} | {medians[1]:.1f} |")


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201


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
    ids = [_find_newest(database, state) for state in (JobState.RUNNING, JobState.QUEUED)]
    if None in ids:
        start = time.perf_counter()
        seed(database, arguments.jobs, arguments.steps)
        _print(f"{arguments.jobs:,} jobs in {time.perf_counter() - start:.0f} s")
        ids = [_find_newest(database, state) for state in (JobState.RUNNING, JobState.QUEUED)]
    database.close()
    running, waiting = ids
    assert running is not None
    assert waiting is not None
    return running, waiting


def _find_newest(database: Database, state: JobState) -> str | None:
    with database.read() as session:
        found = JobLists(session).list_page(JobFilter(states=(state,)), visible_owner=None, before=None, limit=1)
    return found[0].id if found else None


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
        service.environment |= HURRY
        with service:
            asyncio.run(measure(service, list_kinds(long_job, waiting_job), arguments))
    _print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
