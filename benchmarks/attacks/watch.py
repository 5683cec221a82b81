"""Observation of a service under attack: the delay of another client's requests, and the memory of the process."""

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

PROBE_SECONDS = 0.02
SAMPLE_SECONDS = 0.005
CHILDREN_SECONDS = 0.1
PAGE_BYTES = 4096
LOST = 0
"""Status of a request that got no answer, though it was sent again over a new connection."""


@dataclass(frozen=True)
class Probe:
    """A request of the other client, between two times of the monotonic clock."""

    start: float
    end: float
    status: int


def probe_until_told(host: str, port: int, key: str, job_id: str, pipe: Connection) -> None:
    """Send small requests until something comes through `pipe`, and return them all through it.

    One thread opens a connection for each `GET /healthz`, as a monitor does; the other one keeps its connection and
    looks at a job. To be run in a process of its own.
    """
    is_over = threading.Event()
    probes: list[Probe] = []
    headers = {"Authorization": f"Bearer {key}"}

    def look_after_health() -> None:
        connection = http.client.HTTPConnection(host, port, timeout=30)
        _repeat(is_over, probes, lambda: _ask(connection, "/healthz", headers, is_kept=False))

    def look_after_job() -> None:
        connection = http.client.HTTPConnection(host, port, timeout=30)
        _repeat(is_over, probes, lambda: _ask(connection, f"/v1/jobs/{job_id}", headers, is_kept=True))

    threads = [threading.Thread(target=look) for look in (look_after_health, look_after_job)]
    for thread in threads:
        thread.start()
    pipe.recv()
    is_over.set()
    for thread in threads:
        thread.join()
    pipe.send(probes)


def _repeat(is_over: threading.Event, probes: list[Probe], ask: Callable[[], int]) -> None:
    while not is_over.is_set():
        start = time.monotonic()
        status = ask()
        end = time.monotonic()
        probes.append(Probe(start, end, status))
        time.sleep(max(0.0, start + PROBE_SECONDS - end))


def _ask(connection: http.client.HTTPConnection, path: str, headers: dict[str, str], *, is_kept: bool) -> int:
    """Return the status of a request; send it once more if the kept connection is gone."""
    for _ in range(2):
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            continue
        if not is_kept:
            connection.close()
        return answer.status
    return LOST


class MemoryWatch:
    """Largest memory of a process, and of the child processes that it starts meanwhile, until the block ends."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._statm = Path(f"/proc/{pid}/statm")
        self._before = self._measure()
        self._peak = self._before
        self._known = {child.pid for child in self._process.children(recursive=True)}
        self.children_bytes = 0
        """Largest sum of the memory that new child processes have for themselves alone."""
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=watch) for watch in (self._watch, self._watch_children)]

    def __enter__(self) -> "MemoryWatch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    @property
    def grown_bytes(self) -> int:
        """Largest resident memory of the process itself, less what it was at the beginning."""
        return self._peak - self._before

    def _measure(self) -> int:
        return int(self._statm.read_text().split()[1]) * PAGE_BYTES

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, self._measure())

    def _watch_children(self) -> None:
        while not self._is_over.wait(CHILDREN_SECONDS):
            num_bytes = 0
            for child in self._process.children(recursive=True):
                if child.pid not in self._known:
                    with suppress(psutil.Error):
                        memory = child.memory_info()
                        num_bytes += memory.rss - memory.shared
            self.children_bytes = max(self.children_bytes, num_bytes)
