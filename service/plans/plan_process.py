"""Plans made by the trainer in a child process, because the service does not import the trainer; cached.

Every submitter may request a plan of any job, so the time, memory and answer size of the child process are limited.
"""

import hashlib
import json
import os
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from dlrm.config import ResolvedJob
from dlrm.config.patterns import PACKED_META, is_remote
from dlrm.record import EXIT_BAD_INPUT
from service.http.problems import ProblemError
from service.launchers.worker_environment import select_inherited

MAX_SECONDS = 30.0
MAX_AT_ONCE = 2
MAX_WAITING = 4
"""Requests that may wait for a child process. More would occupy the threads that answer all other requests."""
LIMITS = {"memory_bytes": 2**30, "answer_bytes": 2**24}
"""Limits in bytes, as `dlrm.programs.plan` reads them."""
MAX_CACHED = 64
MAX_CACHED_BYTES = 2**26
MAX_ERROR_CHARACTERS = 4000
"""Number of characters that are read from the end of the child's error output when it fails."""
RETRY = {"Retry-After": "30"}

log = structlog.get_logger(__name__)


class Planner:
    """Client of `python -m dlrm.programs.plan`, with a cache of results. Safe to use from many threads."""

    def __init__(self, python: Path, environment: Sequence[str] = (), max_seconds: float = MAX_SECONDS) -> None:
        """Run the program with `python`, an interpreter that has the trainer installed.

        environment: names of further environment variables that it inherits. max_seconds: limit for one plan, and for
        the wait for a free slot.
        """
        self._environment = environment
        self._command = [str(python), "-m", "dlrm.programs.plan"]
        self._max_seconds = max_seconds
        self._slots = threading.Semaphore(MAX_AT_ONCE)
        self._admitted = threading.Semaphore(MAX_AT_ONCE + MAX_WAITING)
        self._cached: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def make_plan(self, resolved: ResolvedJob, *, sees_files: bool = True) -> dict[str, Any]:
        """Return the result line of `dlrm.programs.plan`, parsed; from the cache where possible.

        sees_files: whether the job runs with the files of this machine. Raises ProblemError if the job cannot be
        planned, the program fails or takes too long, or too many requests wait.
        """
        key = _compute_key(resolved, sees_files)
        line = None if key is None else self._find_cached(key)
        if line is None:
            place = "here" if sees_files else "unseen"
            document = {"resolved": resolved.model_dump(mode="json"), "run_directory": None}
            line = self._run_if_admitted({**document, "limits": LIMITS, "place": place})
            if key is not None:
                self._cache(key, line)
        return json.loads(line)

    def _find_cached(self, key: str) -> str | None:
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
            return self._cached.get(key)

    def _cache(self, key: str, line: str) -> None:
        with self._lock:
            self._cached[key] = line
            while len(self._cached) > MAX_CACHED or sum(map(len, self._cached.values())) > MAX_CACHED_BYTES:
                self._cached.popitem(last=False)

    def _run_if_admitted(self, document: dict[str, Any]) -> str:
        if not self._admitted.acquire(blocking=False):
            detail = f"{MAX_AT_ONCE} plans are being made, and {MAX_WAITING} more requests wait"
            raise ProblemError("planning-busy", detail, headers=RETRY)
        try:
            return self._run_program(document)
        finally:
            self._admitted.release()

    def _run_program(self, document: dict[str, Any]) -> str:
        if not self._slots.acquire(timeout=self._max_seconds):
            raise _too_slow(f"{MAX_AT_ONCE} other plans were not finished", self._max_seconds)
        try:
            done = subprocess.run(
                self._command,
                input=json.dumps(document),
                capture_output=True,
                text=True,
                timeout=self._max_seconds,
                check=False,
                start_new_session=True,
                env=select_inherited(os.environ, self._environment),
            )
        except subprocess.TimeoutExpired:
            raise _too_slow("the plan was not finished", self._max_seconds) from None
        finally:
            self._slots.release()
        if done.returncode == 0:
            return done.stdout.splitlines()[-1]
        stderr = done.stderr[-MAX_ERROR_CHARACTERS:]
        if done.returncode == EXIT_BAD_INPUT:
            raise ProblemError("cannot-plan", " ".join(stderr.split()))
        log.error("planning failed", exit_code=done.returncode, stderr=stderr)
        detail = f"exit code {done.returncode}; this is not the job's fault, and the service's log has the output"
        raise ProblemError("planning-failed", detail)


def _compute_key(resolved: ResolvedJob, sees_files: bool) -> str | None:
    """Return a hash of all that the result depends on; None if the result must not be cached.

    The result must not be cached for raw files (their prepared data may appear or change), for unreadable packed data,
    and for a job that starts from another model (its dimensions are read).
    """
    job = resolved.job
    if job.run.warm_start is not None:
        return None
    parts = [resolved.model_dump_json(), str(sees_files)]
    is_read = sees_files or any(map(is_remote, job.data.train))
    if job.data.is_raw and resolved.data_cache is not None and is_read:
        return None
    if job.data.format == "packed" and sees_files:
        try:
            parts.append(hashlib.sha256(Path(job.data.train[0], PACKED_META).read_bytes()).hexdigest())
        except OSError:
            return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _too_slow(event: str, seconds: float) -> ProblemError:
    detail = f"{event} within {seconds:.0f} s; `dlrm plan` on the document has no time limit"
    return ProblemError("plan-timeout", detail, headers=RETRY)
