"""Local launcher: runs attempts as processes of this machine."""

import contextlib
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import structlog
from pydantic import BaseModel, ValidationError

from dlrm.record import AttemptDirectory, RunDirectory, read_rank_ends, write_atomically
from hostinfo.file_lock import try_lock
from hostinfo.process_memory import get_tree_memory_bytes
from hostinfo.stop_signals import defer_stop_signals
from service.launchers.exit_watch import ExitWatch
from service.launchers.processes import find_marked, find_same, kill_all, list_attempt_directories, make_marks
from service.launchers.protocol import (
    NOTHING,
    Capacity,
    FilePlaces,
    Launch,
    Launcher,
    LauncherCapacity,
    LaunchError,
    LaunchFiles,
    LaunchName,
    LaunchPhase,
    LaunchStatus,
)
from service.launchers.worker_environment import make_worker_environment
from service.reasons import Reason

log = structlog.get_logger(__name__)


class ProcessRecord(BaseModel):
    """Launch process of an attempt, stored as `process.json`. `pid` is null until the process is started."""

    pid: int | None = None
    start_time: float = 0.0
    """Start time of the process, in seconds since the epoch."""


@dataclass(frozen=True)
class LocalOptions:
    """Options of the local launcher."""

    python: Path
    """Interpreter that has the trainer."""
    capacity: Capacity
    """All that jobs may occupy on this machine."""
    places: FilePlaces
    ingest_url: str
    """Address of the service for programs on this machine."""
    service_id: str
    """Identity of the service, by which it recognises its processes."""
    node: str
    """Name of this machine."""
    environment: Sequence[str] = ()
    """Names of further environment variables that workers inherit."""


class LocalLauncher(Launcher):
    """Launcher that runs `python -m dlrm.launch` in a new session for each attempt.

    Finds running attempts again after a restart of the service.
    """

    def __init__(self, options: LocalOptions, on_change: Callable[[], None]) -> None:
        """Call `on_change`, in any thread, when a process of an attempt has ended."""
        self._options = options
        self._children: dict[Path, subprocess.Popen[bytes]] = {}
        self._exits = ExitWatch(on_change)

    @property
    def node(self) -> str:
        return self._options.node

    @property
    def ingest_url(self) -> str:
        return self._options.ingest_url

    @property
    def places(self) -> FilePlaces:
        return self._options.places

    @property
    def shares_files(self) -> bool:
        return True

    def describe_place(self, run_directory: RunDirectory) -> str:
        return str(run_directory.path)

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        attempt = _get_attempt_directory(launch)
        try:
            _write_files(launch, files)
        except (OSError, ValueError) as error:
            raise LaunchError(f"cannot write the run directory: {error}") from error
        with (attempt.path / "start.lock").open("a") as file:
            # Where another process of the service holds the lock, it is starting this very attempt. It may also have
            # done so, and the attempt have ended, while this process was stopped.
            if try_lock(file.fileno()) and self.describe(launch).phase is LaunchPhase.ABSENT:
                self._start_recorded(launch, attempt)

    def describe(self, launch: Launch) -> LaunchStatus:
        node = self._options.node
        if launch.node not in (None, node):
            message = f"runs on {launch.node}, which a service process on that machine has to look after"
            return LaunchStatus(LaunchPhase.UNSEEN, Reason.UNSEEN, message, launch.node)
        attempt = _get_attempt_directory(launch)
        process = self._find_process(launch)
        if process is not None:
            self._exits.add(process.pid)
            used = get_tree_memory_bytes(process, exact_above=launch.demand.node.memory_bytes)
            return LaunchStatus(LaunchPhase.ALIVE, node=node, memory_bytes=used)
        record, child = _read_record(attempt), self._children.get(attempt.path)
        # A child counts even without its record: the disk may have been full.
        if child is None and (record is None or (record.pid is None and not _has_run(attempt))):
            return LaunchStatus(LaunchPhase.ABSENT)
        return LaunchStatus(
            LaunchPhase.ENDED,
            node=node,
            exit_code=child.poll() if child else None,
            rank_ends=tuple(read_rank_ends(attempt.rank_ends)),
        )

    def list(self) -> list[Launch]:
        # A copy of the database elsewhere has the same identity.
        own, service_id = self._options.places.runs_directory, self._options.service_id
        return [_make_launch(path) for path in list_attempt_directories(service_id) if path.is_relative_to(own)]

    def stop(self, launch: Launch) -> None:
        process = self._find_process(launch)
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)

    def kill(self, launch: Launch) -> bool:
        self._reap(launch)
        remaining = find_marked(_get_attempt_directory(launch).path)
        kill_all(remaining)
        for process in remaining:
            self._exits.add(process.pid)
        return not remaining

    def delete(self, launch: Launch) -> None:
        self._children.pop(_get_attempt_directory(launch).path, None)

    def capacity(self) -> LauncherCapacity:
        return LauncherCapacity(self._options.capacity, self._options.capacity)

    def _start_recorded(self, launch: Launch, attempt: AttemptDirectory) -> None:
        _get_record_path(attempt).unlink(missing_ok=True)
        # If the service is killed before it has written the pid, it finds the process by its mark.
        _write_record(attempt, ProcessRecord())
        child = self._start_process(launch, attempt)
        self._children[attempt.path] = child
        self._exits.add(child.pid)
        _write_record(attempt, ProcessRecord(pid=child.pid, start_time=psutil.Process(child.pid).create_time()))
        log.info("attempt_started", directory=str(attempt.path), pid=child.pid)

    def _start_process(self, launch: Launch, attempt: AttemptDirectory) -> subprocess.Popen[bytes]:
        run_directory = launch.run_directory.path
        command = [str(self._options.python), "-m", "dlrm.launch", str(run_directory)]
        command += ["--attempt", str(launch.attempt)]
        marks = make_marks(attempt.path, self._options.service_id)
        try:
            with attempt.launch_log.open("ab") as output, defer_stop_signals():
                return subprocess.Popen(
                    command,
                    cwd=run_directory,
                    env=make_worker_environment(marks, launch.gpus, self._options.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            _get_record_path(attempt).unlink(missing_ok=True)
            raise LaunchError(f"cannot run {command[0]}: {error.strerror}") from error

    def _find_process(self, launch: Launch) -> psutil.Process | None:
        """Return the launch process; None if it is not alive."""
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


def _make_launch(attempt_path: Path) -> Launch:
    """Make the name of an attempt from its directory, for one that the database may not know."""
    directory = RunDirectory(attempt_path.parent)
    number = attempt_path.name.rpartition("-")[2]
    return Launch(LaunchName(directory.path.name, int(number)), directory, NOTHING)


def _get_attempt_directory(launch: Launch) -> AttemptDirectory:
    return launch.run_directory.attempt(launch.attempt)


def _write_files(launch: Launch, files: LaunchFiles) -> None:
    attempt = _get_attempt_directory(launch)
    attempt.create()
    if not launch.run_directory.spec.exists():
        # Every attempt reads the same document as the first one, even if another version of the service starts it.
        write_atomically(launch.run_directory.spec, files.document)
    write_atomically(attempt.push_target, files.push_target, mode=0o600)


def _get_record_path(attempt: AttemptDirectory) -> Path:
    return attempt.path / "process.json"


def _has_run(attempt: AttemptDirectory) -> bool:
    """Whether a process of an attempt has left anything, even if the service was killed before it noted the process.

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
