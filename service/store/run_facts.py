"""Facts about the runs of jobs: found in their directories where the service sees these, else as they were reported."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from dlrm.config.patterns import is_remote
from dlrm.record import CheckpointFaultError, CheckpointReport, Outcome, RunDirectory, list_checkpoints
from service.database import Database
from service.launchers.log_files import LogFile, LogText, find_last_line, read_part
from service.launchers.protocol import LaunchStatus, LogName, LogPart, LogRange
from service.launchers.registry import Launchers
from service.store.attempt_repository import AttemptRepository, CheckpointRepository
from service.store.launches import read_placement
from service.store.log_parts import LAUNCH, LOG, LogPartRepository, StoredLog, StoredLogName
from service.store.models import Attempt, Job


class Checkpoint(BaseModel, frozen=True, from_attributes=True):
    """A complete checkpoint. Its files are not compared with their checksums; an attempt that resumes from it does."""

    step: int
    """Batches consumed."""
    num_steps: int
    num_samples: int
    num_bytes: int
    world_size: int
    time: datetime
    """Time of completion."""
    path: str
    """Path of its directory; also a URI where the service does not see it."""


def list_job_checkpoints(job: Job) -> list[Checkpoint]:
    """List the complete checkpoints of a job, newest first."""
    checkpoints: list[Checkpoint] = []
    for directory in list_checkpoints(RunDirectory(Path(job.run_directory)).checkpoints):
        try:
            report = CheckpointReport.from_manifest(directory.read_manifest(), str(directory.path))
            time = datetime.fromtimestamp(report.time, UTC)
            checkpoints.append(Checkpoint.model_validate(report.model_dump() | {"time": time}))
        except (CheckpointFaultError, OverflowError, ValueError, OSError):
            # Still being written, left by a crash, or not a checkpoint of this program.
            continue
    return checkpoints


class RunFacts:
    """Reader of what runs have left. Nothing is read in a run directory that the service does not see."""

    def __init__(self, database: Database, launchers: Launchers) -> None:
        self._database = database
        self._launchers = launchers

    def shares_files(self, job: Job) -> bool:
        """Whether the service sees the run directory of a job."""
        return self._launchers[job.launcher].shares_files

    def read_end(self, job: Job, attempt: Attempt, status: LaunchStatus) -> LaunchStatus:
        """Read how an attempt has ended, and return `status`, what its launcher says, with what the run says instead.

        The run may say its outcome, its last log line, how its ranks ended, and which files it has left.
        """
        if self.shares_files(job):
            directory = RunDirectory(Path(job.run_directory)).attempt(attempt.number)
            outcome = Outcome.read(directory.outcome) or status.outcome
            last_line = find_last_line(LogFile(directory.launch_log)) or status.last_log_line
            return replace(status, outcome=outcome, last_log_line=last_line)
        with self._database.read() as session:
            end = AttemptRepository(session).get_reported_end(attempt.id)
            last_line = status.last_log_line or find_last_line(LogPartRepository(session).open(attempt.id, 0, LAUNCH))
        if end is None:
            return replace(status, last_log_line=last_line)
        return replace(
            status,
            outcome=end.outcome,
            rank_ends=tuple(end.rank_ends) or status.rank_ends,
            last_log_line=last_line,
            model_path=end.model_path or status.model_path,
            checkpoint=end.checkpoint or status.checkpoint,
        )

    def read_log(self, job: Job, attempt: Attempt, name: LogName, part: LogRange) -> LogPart:
        """Read a part of the log of a rank or of a launch process; empty if nothing was written."""
        with self.open_log(job, attempt, name) as log:
            return read_part(log, part) if log.end else LogPart("", part.offset, part.offset, is_at_end=True)

    @contextmanager
    def open_log(self, job: Job, attempt: Attempt, name: LogName) -> Generator[LogText]:
        """Open the log of a rank or of a launch process, which has no bytes if nothing was written."""
        if self.shares_files(job):
            directory = RunDirectory(Path(job.run_directory)).attempt(attempt.number)
            source, node = name.source, name.node
            yield LogFile(directory.find_launch_log(node) if source == "launch" else directory.rank_log(source))
            return
        with self._database.read() as session:
            logs = LogPartRepository(session)
            if name.source != "launch":
                yield logs.open(attempt.id, name.source, LOG)
            elif (rank := logs.find_launch_rank(attempt.id, name.node)) is not None:
                yield logs.open(attempt.id, rank, LAUNCH)
            else:
                yield StoredLog(session, attempt.id, 0, LAUNCH, 0, 0)

    def list_stored_logs(self, job: Job) -> dict[str, StoredLogName]:
        """Return the logs that a job has pushed, by the names of such files; none if the service sees its files."""
        if self.shares_files(job):
            return {}
        with self._database.read() as session:
            return LogPartRepository(session).list_by_job(job.id)

    def measure_logs(self, job: Job) -> int:
        """Measure how much the processes of the last attempt have logged: a number that grows with each new line."""
        if self.shares_files(job):
            directory = RunDirectory(Path(job.run_directory)).attempt(job.num_attempts)
            launch_logs = map(directory.find_launch_log, range(job.num_nodes))
            logs = [*launch_logs, *map(directory.rank_log, range(job.world_size))]
            return sum(log.stat().st_size for log in logs if log.exists())
        with self._database.read() as session:
            return LogPartRepository(session).count_lines(job.id, job.num_attempts)

    def list_checkpoints(self, job: Job) -> list[Checkpoint]:
        """List the complete checkpoints of a job, newest first."""
        if self.shares_files(job):
            return list_job_checkpoints(job)
        with self._database.read() as session:
            reported = CheckpointRepository(session).list_by_job(job.id)
        return [Checkpoint.model_validate(row) for row in reported]

    def find_newest_saved_step(self, job: Job, attempt: Attempt) -> int | None:
        """Return the step of the newest checkpoint that an attempt wrote, the last one; None if absent."""
        if self.shares_files(job):
            saved = (found.step for found in list_job_checkpoints(job) if found.time >= attempt.started_at)
            return next(saved, None)
        with self._database.read() as session:
            return CheckpointRepository(session).find_newest_step(job.id, attempt.number)

    def find_model(self, job: Job) -> str | None:
        """Return the path or URI of the model that a job has left; None if absent."""
        if not self.shares_files(job):
            return job.model_path
        model = RunDirectory(Path(job.run_directory)).model
        return str(model) if model.is_dir() else None

    def find_run(self, job: Job) -> str | None:
        """Return the path or URI of a run's files that the service does not see; None if none was reported."""
        if job.model_path is not None:
            return _get_parent(job.model_path)
        checkpoints = self.list_checkpoints(job)
        return _get_parent(_get_parent(checkpoints[0].path)) if checkpoints else None

    def describe_place(self, job: Job) -> str:
        """Describe where people find the files of a run: a path of this machine, a URI, or a directory of a volume."""
        reported = None if self.shares_files(job) else self.find_run(job)
        if reported is not None and is_remote(reported):
            return reported
        return self._launchers[job.launcher].describe_place(RunDirectory(Path(reported or job.run_directory)))

    def find_left_files(self, job: Job) -> str | None:
        """Describe where the files of a job stay once it is deleted; None if the service removes them."""
        # A job without an attempt has written nothing.
        return None if self.shares_files(job) or not job.num_attempts else self.describe_place(job)

    def find_image(self, job: Job) -> str | None:
        """Return the container image of the next attempt of a job; None if it runs in none."""
        return self._launchers[job.launcher].find_image(read_placement(job))


def _get_parent(place: str) -> str:
    return place.rstrip("/").rpartition("/")[0]
