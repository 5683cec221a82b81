"""Local launcher: runs attempts as processes of this machine."""

import contextlib
import signal
import subprocess
import time
from pathlib import Path

import psutil
import structlog
from pydantic import BaseModel, ValidationError

from dlrm.record import AttemptDirectory, write_atomically
from hostinfo.process_memory import get_tree_memory_bytes
from hostinfo.stop_signals import defer_stop_signals
from service.launchers.log_files import read_log
from service.launchers.processes import (
    find_marked,
    find_same,
    kill_all,
    make_marked_environment,
)
from service.launchers.protocol import (
    Capacity,
    Launch,
    LaunchError,
    LaunchPhase,
    LaunchStatus,
    LogPart,
    LogRange,
    LogSource,
)

log = structlog.get_logger(__name__)

KILL_ROUNDS = 40
KILL_ROUND_SECONDS = 0.05
"""Seconds between two rounds of kill signals. Processes that survive KILL_ROUNDS rounds are left to the next call."""


class ProcessRecord(BaseModel):
    """Launch process of an attempt, stored as `process.json`. `pid` is null until the process is started."""

    pid: int | None = None
    start_time: float = 0.0
    """Start time of the process, in seconds since the epoch."""


class LocalLauncher:
    """Launcher that runs `python -m dlrm.launch` in a new session for each attempt.

    Finds running attempts again after a restart of the service.
    """

    def __init__(self, python: Path, capacity: Capacity) -> None:
        """Run attempts with `python`, an interpreter that has the trainer. capacity: all that jobs may occupy."""
        self._python = python
        self._capacity = capacity
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, launch: Launch) -> None:
        if self._find_process(launch) is not None:
            return
        attempt = _get_attempt_directory(launch)
        attempt.create()
        _get_record_path(attempt).unlink(missing_ok=True)
        # If the service is killed before it has written the pid, it finds the process by its mark.
        _write_record(attempt, ProcessRecord())
        child = self._start_process(launch, attempt)
        self._children[attempt.path] = child
        _write_record(attempt, ProcessRecord(pid=child.pid, start_time=psutil.Process(child.pid).create_time()))
        log.info("attempt_started", directory=str(attempt.path), pid=child.pid)

    def describe(self, launch: Launch) -> LaunchStatus:
        attempt = _get_attempt_directory(launch)
        process = self._find_process(launch)
        if process is not None:
            return LaunchStatus(LaunchPhase.ALIVE, memory_bytes=get_tree_memory_bytes(process))
        record, child = _read_record(attempt), self._children.get(attempt.path)
        # A child counts even without its record: the disk may have been full.
        if child is None and (record is None or (record.pid is None and not _has_run(attempt))):
            return LaunchStatus(LaunchPhase.ABSENT)
        return LaunchStatus(LaunchPhase.ENDED, exit_code=child.poll() if child else None)

    def stop(self, launch: Launch) -> None:
        process = self._find_process(launch)
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)

    def kill(self, launch: Launch) -> bool:
        # Several rounds: a process may fork while the others are being killed.
        for _ in range(KILL_ROUNDS):
            remaining = find_marked(_get_attempt_directory(launch).path)
            if not remaining:
                return True
            kill_all(remaining)
            time.sleep(KILL_ROUND_SECONDS)
            self._reap(launch)
        return False

    def delete(self, launch: Launch) -> None:
        # The kernel kills ranks with their launch process, but not what they have started in sessions of their own.
        self.kill(launch)
        self._children.pop(_get_attempt_directory(launch).path, None)

    def read_log(self, launch: Launch, source: LogSource, part: LogRange) -> LogPart:
        attempt = _get_attempt_directory(launch)
        return read_log(attempt.launch_log if source == "launch" else attempt.rank_log(source), part)

    def capacity(self) -> Capacity:
        return self._capacity

    def _start_process(self, launch: Launch, attempt: AttemptDirectory) -> subprocess.Popen[bytes]:
        run_directory = launch.run_directory.path
        command = [str(self._python), "-m", "dlrm.launch", str(run_directory), "--attempt", str(launch.attempt)]
        try:
            with attempt.launch_log.open("ab") as output, defer_stop_signals():
                return subprocess.Popen(
                    command,
                    cwd=run_directory,
                    env=make_marked_environment(attempt.path),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            _get_record_path(attempt).unlink(missing_ok=True)
            raise LaunchError(f"cannot run {command[0]}: {error.strerror}") from error

    def _find_process(self, launch: Launch) -> psutil.Process | None:
        """Return the launch process; None where it is not alive."""
        self._reap(launch)
        attempt = _get_attempt_directory(launch)
        record = _read_record(attempt)
        if record is None:
            return None
        if record.pid is not None:
            return find_same(record.pid, record.start_time, attempt.path)
        unrecorded = next(iter(find_marked(attempt.path)), None)
        if unrecorded is not None:
            # Where the record cannot be written, the next call finds the process by its mark again.
            with contextlib.suppress(psutil.Error, OSError):
                _write_record(attempt, ProcessRecord(pid=unrecorded.pid, start_time=unrecorded.create_time()))
        return unrecorded

    def _reap(self, launch: Launch) -> None:
        child = self._children.get(_get_attempt_directory(launch).path)
        if child is not None:
            child.poll()


def _get_attempt_directory(launch: Launch) -> AttemptDirectory:
    return launch.run_directory.attempt(launch.attempt)


def _get_record_path(attempt: AttemptDirectory) -> Path:
    return attempt.path / "process.json"


def _has_run(attempt: AttemptDirectory) -> bool:
    """Whether a process of an attempt has left anything, even where the service was killed before it noted the process.

    Such an attempt is not started again: what it has reported would be reported twice.
    """
    files = [*attempt.spool.glob("*"), *attempt.logs.glob("*")]
    return attempt.outcome.exists() or any(file.stat().st_size for file in files)


def _write_record(attempt: AttemptDirectory, record: ProcessRecord) -> None:
    write_atomically(_get_record_path(attempt), record.model_dump_json())


def _read_record(attempt: AttemptDirectory) -> ProcessRecord | None:
    try:
        return ProcessRecord.model_validate_json(_get_record_path(attempt).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
