"""Answer times of a service under load: `python -m benchmarks.service_load`.

Starts a real service (SQLite unless `--database-url` names another database) whose jobs do nothing. Then at once, for
some seconds: curve readers, each reading the whole curve of a job again and again; ingest streams, each pushing some
lines every two seconds, as a rank does; and probes that measure `GET /healthz` and `GET /v1/jobs/{id}`. Every reader
has a key and a connection of its own. All clients run on the same machine, in three processes.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import httpx

from dlrm.record import StepReport
from tests.service.api import make_client, write_data
from tests.service.service_process import ServiceProcess

NUM_JOBS = 4
NUM_LAYERS = 8
PUSH_SECONDS = 2.0
PROBE_SECONDS = 0.05
LINES_PER_PUSH = 1000
WAIT_SECONDS = 120.0
LATENCIES = ("/healthz", "/v1/jobs/{id}")


@dataclass(frozen=True)
class Load:
    """Load on a service at `url`, for `seconds`."""

    url: str
    seconds: float
    num_lines: int
    """Lines of one push."""


@dataclass(frozen=True)
class RunningJob:
    """A job whose reports the benchmark pushes."""

    job_id: str
    ingest_path: str
    token: str


@dataclass
class Result:
    """Seconds of the requests of one group of clients, and how many had each status."""

    name: str
    seconds: list[float] = field(default_factory=list[float])
    statuses: Counter[int] = field(default_factory=Counter[int])
    num_bytes: int = 0
    """Bytes of the body of the last answer."""

    def describe(self) -> str:
        """Return a row of a table: name, requests, median, 99th percentile and largest milliseconds, other statuses."""
        p50, p99, largest = find_percentiles(self.seconds, 0.5, 0.99, 1.0)
        others = ", ".join(f"{count} x {status}" for status, count in self.statuses.items() if status != 200)
        return f"| {self.name} | {len(self.seconds):,} | {p50:,.0f} | {p99:,.0f} | {largest:,.0f} | {others or '-'} |"


def find_percentiles(seconds: list[float], *shares: float) -> list[float]:
    """Return the milliseconds within which each of these shares of the requests was answered."""
    ordered = sorted(seconds)
    return [1000 * ordered[ceil(share * len(ordered)) - 1] for share in shares]


def say(line: str) -> None:
    """Print a line at once: measurements take minutes."""
    print(line, flush=True)  # noqa: T201


class Connection:
    """HTTP over one connection that stays open; with less work than a library would have, since cores are shared."""

    def __init__(self, url: str, token: str) -> None:
        self._host, _, self._port = url.removeprefix("http://").partition(":")
        self._head = f"host: {self._host}\r\nauthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, result: Result, method: str, path: str, body: bytes = b"") -> None:
        """Send a request, read the whole answer, and note its seconds and status; 0 if the connection was lost."""
        content = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
        start_seconds = time.perf_counter()
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._host, int(self._port), limit=2**20)
            reader, writer = self._streams
            writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{content}\r\n".encode() + body)
            status, result.num_bytes = await _read_answer(reader)
        except (OSError, asyncio.IncompleteReadError):
            status, self._streams = 0, None
        result.seconds.append(time.perf_counter() - start_seconds)
        result.statuses[status] += 1


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, int]:
    """Read an answer, and return its status and the bytes of its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    num_bytes = left = int(head.partition("content-length:")[2].split("\r\n")[0])
    while left:
        part = await reader.read(min(left, 2**20))
        if not part:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(part)
    return int(head.split()[1]), num_bytes


async def _repeat(load: Load, interval_seconds: float, act: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Call `act`, with the number of the call, every `interval_seconds` or as soon as the call before it has ended."""
    end_seconds = time.perf_counter() + load.seconds
    number = 0
    while (start_seconds := time.perf_counter()) < end_seconds:
        await act(number)
        number += 1
        await asyncio.sleep(max(0.0, start_seconds + interval_seconds - time.perf_counter()))


def read_curves(load: Load, jobs: list[RunningJob], keys: list[str]) -> list[Result]:
    """Read whole curves, each reader the curve of one job."""
    result = Result("whole curve")

    async def read(number: int) -> None:
        connection = Connection(load.url, keys[number])
        path = f"/v1/jobs/{jobs[number % len(jobs)].job_id}/metrics?limit=10000"
        await _repeat(load, 0.0, lambda _: connection.request(result, "GET", path))

    async def read_all() -> None:
        await asyncio.gather(*(read(number) for number in range(len(keys))))

    asyncio.run(read_all())
    return [result]


def push_reports(load: Load, jobs: list[RunningJob], num_streams: int) -> list[Result]:
    """Push lines of as many ranks, in `metrics` streams."""
    result = Result("push")

    async def push(number: int) -> None:
        job, rank = jobs[number % len(jobs)], 1 + number // len(jobs)
        connection = Connection(load.url, job.token)
        await asyncio.sleep(PUSH_SECONDS * number / num_streams)

        async def push_next(push_number: int) -> None:
            body = make_push(rank, 1 + push_number * load.num_lines, load.num_lines)
            await connection.request(result, "POST", job.ingest_path, body)

        await _repeat(load, PUSH_SECONDS, push_next)

    async def push_all() -> None:
        await asyncio.gather(*(push(number) for number in range(num_streams)))

    asyncio.run(push_all())
    return [result]


def probe(load: Load, jobs: list[RunningJob], key: str) -> list[Result]:
    """Measure how long small requests take."""
    results = [Result(path) for path in LATENCIES]

    async def measure(result: Result) -> None:
        connection = Connection(load.url, key)
        path = result.name.format(id=jobs[0].job_id)
        await _repeat(load, PROBE_SECONDS, lambda _: connection.request(result, "GET", path))

    async def measure_all() -> None:
        await asyncio.gather(*(measure(result) for result in results))

    asyncio.run(measure_all())
    return results


def make_push(rank: int, first_seq: int, num_lines: int) -> bytes:
    """Make the body of a push of step reports."""
    lines = [make_step_line(seq) for seq in range(first_seq, first_seq + num_lines)]
    return json.dumps({"rank": rank, "stream": "metrics", "first_seq": first_seq, "lines": lines}).encode()


def make_step_line(seq: int) -> str:
    """Make the line of a step that measures the noise of the gradient."""
    return StepReport(
        seq=seq,
        time=time.time(),
        step=seq,
        num_steps=1_000_000,
        num_samples=16_384 * seq,
        loss=0.4512345 + 1.0 / seq,
        dense_learning_rate=0.001234567,
        table_learning_rate=0.01234567,
        samples_per_second=123_456.789,
        noise_scale=31_204.3,
        gsnr={f"bottom.layers.{layer}": 0.012345678 / seq for layer in range(NUM_LAYERS)},
    ).model_dump_json()


def make_service(directory: Path, database_url: str | None) -> ServiceProcess:
    """Make a service whose jobs run `sleep`."""
    trainer = directory / "python"
    trainer.write_text(f"#!/bin/sh\nexec sleep {10 * WAIT_SECONDS:.0f}\n")
    trainer.chmod(0o755)
    settings = {
        "DLRM_STATE_DIRECTORY": str(directory / "state"),
        "DLRM_DATA_ROOTS": str(write_data(directory / "data")),
        "DLRM_TRAINER_PYTHON": str(trainer),
        "DLRM_NUM_CORES": "1000",
        "DLRM_MEMORY_BYTES": str(2**40),
        # The jobs take no notice of a stop request.
        "DLRM_GRACE_PERIOD_SECONDS": "0",
    } | ({"DLRM_DATABASE_URL": database_url} if database_url else {})
    return ServiceProcess(directory, settings)


def _submit(client: httpx.Client, number: int, num_ranks: int) -> dict[str, Any]:
    document = {
        "name": f"load-{number}",
        "data": {"train": ["day_0.tsv"]},
        "batch": {"global_size": 64 * num_ranks},
        "resources": {"workers_per_node": num_ranks, "memory": f"{num_ranks}GiB"},
    }
    return client.post("/v1/jobs", json=document).raise_for_status().json()


def start_jobs(client: httpx.Client, num_ranks: int, num_points: int, num_jobs: int = NUM_JOBS) -> list[RunningJob]:
    """Start jobs, each with a curve of `num_points` steps."""
    documents = [_submit(client, number, num_ranks) for number in range(num_jobs)]
    jobs: list[RunningJob] = []
    for submitted in documents:
        target_file = Path(submitted["run_directory"]) / "attempt-1" / "push.json"
        wait_for(target_file.exists)
        target = json.loads(target_file.read_text())
        job = RunningJob(submitted["id"], "/v1/ingest/" + target["url"].rpartition("/")[2], target["token"])
        jobs.append(job)
        for first in range(1, num_points + 1, LINES_PER_PUSH):
            body = make_push(0, first, min(LINES_PER_PUSH, num_points + 1 - first))
            headers = {"Authorization": f"Bearer {job.token}", "Content-Type": "application/json"}
            client.post(job.ingest_path, content=body, headers=headers).raise_for_status()
    return jobs


def kill_jobs(directory: Path) -> None:
    """Kill the jobs that a service of `make_service` has started."""
    for attempt in directory.glob("state/runs/*/attempt-*/process.json"):
        with suppress(ProcessLookupError):
            os.kill(json.loads(attempt.read_text())["pid"], signal.SIGKILL)


def wait_for(look: Callable[[], bool]) -> None:
    """Wait until `look` returns True. Raises TimeoutError."""
    give_up_at = time.monotonic() + WAIT_SECONDS
    while not look():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"not within {WAIT_SECONDS:g} s")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=45)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--points", type=int, default=5000, help="steps of each curve")
    parser.add_argument("--lines", type=int, default=20, help="lines of a push")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--database-url", help="an empty database (default: SQLite in a temporary directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            with make_service(Path(directory), arguments.database_url) as service:
                client = make_client(service.url, service.admin_key)
                num_ranks = 1 + -(-arguments.streams // NUM_JOBS)
                jobs = start_jobs(client, num_ranks, arguments.points)
                keys = [
                    client.post("/v1/keys", json={"name": f"reader-{number}", "role": "admin"}).json()["key"]
                    for number in range(arguments.readers + 1)
                ]
                load = Load(service.url, arguments.seconds, arguments.lines)
                tasks = [(probe, jobs, keys[0]), (read_curves, jobs, keys[1:]), (push_reports, jobs, arguments.streams)]
                with multiprocessing.Pool(len(tasks)) as pool:
                    waiting = [pool.apply_async(task, (load, *rest)) for task, *rest in tasks]
                    results = [result for task in waiting for result in task.get(WAIT_SECONDS + arguments.seconds)]
        finally:
            kill_jobs(Path(directory))
    say("| request | number | p50, ms | p99, ms | largest, ms | other statuses |")
    say("|---|---|---|---|---|---|")
    for result in results:
        if result.seconds:
            say(result.describe())
    say(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
