"""Reports a second that a service stores, and whether a kill loses any: `python -m benchmarks.service_ingest`.

Starts a real service with jobs that do nothing, on SQLite, or on a PostgreSQL server of its own with fsync. A process
pushes reports of steps for all jobs at once, each as soon as its last push is acknowledged. Halfway the service is
killed and started again; the senders try again. In the end every acknowledged line must be there once. All of it shares
this machine.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import httpx
import psutil

from benchmarks.service_load import (
    Connection,
    Result,
    RunningJob,
    kill_jobs,
    make_service,
    make_step_line,
    say,
    start_jobs,
)
from tests.service.api import make_client
from tests.service.postgres import run_postgres
from tests.service.service_process import ServiceProcess

RETRY_SECONDS = 0.2
WARM_UP_SECONDS = 3.0


class Senders:
    """A process that pushes the reports of all jobs."""

    def __init__(self, url: str, jobs: list[RunningJob], num_lines: int) -> None:
        """Begin to push to the service at `url`. num_lines: lines of one push."""
        self.num_acknowledged: Synchronized[int] = multiprocessing.Value("q", 0)
        self._must_end: Synchronized[int] = multiprocessing.Value("i", 0)
        self._results: multiprocessing.Queue[dict[str, int]] = multiprocessing.Queue()
        arguments = (url, jobs, num_lines, self.num_acknowledged, self._must_end, self._results)
        self._process = multiprocessing.Process(target=_send_all, args=arguments, daemon=True)
        self._process.start()

    def end(self) -> dict[str, int]:
        """Let every push be acknowledged that has begun, and return the last acknowledged line of each job."""
        self._must_end.value = 1
        return self._results.get(timeout=120)


def _send_all(
    url: str,
    jobs: list[RunningJob],
    num_lines: int,
    num_acknowledged: "Synchronized[int]",
    must_end: "Synchronized[int]",
    results: "multiprocessing.Queue[dict[str, int]]",
) -> None:
    last_lines = dict.fromkeys((job.job_id for job in jobs), 0)
    start, end = make_step_line(1).replace('"seq":1,', '"seq":{seq},').split('"step":1,')
    start = start.replace("{seq}", "%d")

    async def send(job: RunningJob) -> None:
        connection, result = Connection(url, job.token), Result("push")
        while not must_end.value:
            first = 1 + last_lines[job.job_id]
            lines = [f'{start % seq}"step":{seq},{end}' for seq in range(first, first + num_lines)]
            body = json.dumps({"rank": 0, "stream": "metrics", "first_seq": first, "lines": lines}).encode()
            while True:
                before = result.statuses[200]
                await connection.request(result, "POST", job.ingest_path, body)
                if result.statuses[200] > before:
                    break
                await asyncio.sleep(RETRY_SECONDS)
            last_lines[job.job_id] += num_lines
            num_acknowledged.value += num_lines

    async def gather() -> None:
        await asyncio.gather(*map(send, jobs))

    asyncio.run(gather())
    results.put(last_lines)


def check_lines(client: httpx.Client, last_lines: dict[str, int]) -> int:
    """Check that every acknowledged line of every job is there once, and return their number."""
    for job_id, last_line in last_lines.items():
        seqs: list[int] = []
        query: dict[str, str] | None = {"limit": "10000"}
        while query:
            page = client.get(f"/v1/jobs/{job_id}/metrics", params=query).raise_for_status().json()
            seqs += [item["seq"] for item in page["items"]]
            query = query | {"cursor": page["next_cursor"]} if page["next_cursor"] else None
        if seqs != list(range(1, last_line + 1)):
            raise AssertionError(f"{job_id}: {len(seqs)} lines are there, {last_line} were acknowledged")
    return sum(last_lines.values())


def measure(senders: Senders, service: ServiceProcess, server_pid: int | None, seconds: float) -> str:
    """Measure lines a second, and the cores that the service and the server of its database take."""
    before, start = _read_cpu(service.pid, server_pid), time.perf_counter()
    first = senders.num_acknowledged.value
    time.sleep(seconds)
    passed, lines = time.perf_counter() - start, senders.num_acknowledged.value - first
    own, server = (
        (after - earlier) / passed for after, earlier in zip(_read_cpu(service.pid, server_pid), before, strict=True)
    )
    return f"{lines / passed:,.0f} lines/s; cores: service {own:.2f}, database server {server:.2f}"


def _read_cpu(pid: int, server_pid: int | None) -> tuple[float, float]:
    server = psutil.Process(server_pid).children(recursive=True) if server_pid else []
    return sum(psutil.Process(pid).cpu_times()[:2]), sum(sum(process.cpu_times()[:2]) for process in server)


@contextmanager
def lend_database(kind: str) -> Generator[tuple[str | None, int | None]]:
    """Yield the URL of a new database, None for SQLite, and the id of its server's process."""
    if kind == "sqlite":
        yield None, None
        return
    with run_postgres() as server:
        for setting in ("fsync", "full_page_writes"):
            server.execute(f"ALTER SYSTEM SET {setting} = on")
        server.execute("SELECT pg_reload_conf()")
        pid = int(server.directory.joinpath("data/postmaster.pid").read_text().split()[0])
        yield server.make_url(server.create_database()), pid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="postgresql")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--lines", type=int, default=100, help="lines of a push")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds before the kill, and again after it")
    arguments = parser.parse_args()
    # So that everything that was started is ended here too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as name, lend_database(arguments.database) as (url, server_pid):
        directory = Path(name)
        service = make_service(directory, url)
        service.environment |= {
            "DLRM_PUSHES_PER_SECOND": "10000",
            "DLRM_REQUESTS_PER_SECOND_PER_ADDRESS": "100000",
            "DLRM_REQUESTS_PER_SECOND": "10000",
        }
        try:
            with service:
                client = make_client(service.url, service.admin_key)
                jobs = start_jobs(client, 1, 0, arguments.jobs)
                senders = Senders(service.url, jobs, arguments.lines)
                time.sleep(WARM_UP_SECONDS)
                say(measure(senders, service, server_pid, arguments.seconds))
                service.kill()
                service.start()
                service.wait_until_ready()
                time.sleep(WARM_UP_SECONDS)
                say(f"after the kill: {measure(senders, service, server_pid, arguments.seconds)}")
                num_lines = check_lines(client, senders.end())
                say(f"{num_lines:,} lines acknowledged, each of them stored once")
        finally:
            kill_jobs(directory)
    say(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
