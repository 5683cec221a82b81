"""Preparation of an attempt of `dlrm train`, in a new run directory or in that of a run to resume."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from dlrm.config import ConfigError, JobSpec, ResolvedJob, differences, field_errors, identity_of, resolve
from dlrm.record import (
    FULL_DISK,
    AttemptDirectory,
    CheckpointManifest,
    Outcome,
    RunDirectory,
    RunInUseError,
    newest_checkpoint,
    run_lock,
    write_atomically,
)
from service.cli.documents import data_from_job_file, read_job, require_data_files, require_model_to_start_from
from service.cli.errors import BadInputError, CommandError
from service.cli.trainer import require_trainer
from service.settings import StateSettings
from service.state_directory import StateDirectoryError, make_state_directory


@dataclass(frozen=True)
class StartedRun:
    """Attempt that is about to start: its run directory exists."""

    directory: RunDirectory
    number: int
    """Number of the attempt, counted from 1."""
    resolved: ResolvedJob
    checkpoint: CheckpointManifest | None
    """Newest checkpoint, from which the attempt should resume; None where it begins from the start. The trainer may
    find it damaged and resume from an older one."""

    @property
    def attempt(self) -> AttemptDirectory:
        return self.directory.attempt(self.number)


class SucceededError(Exception):
    """Exception for a run to resume that has already succeeded."""

    def __init__(self, directory: RunDirectory, outcome: Outcome) -> None:
        self.directory = directory
        self.outcome = outcome
        super().__init__(f"{directory.path} has succeeded before: there is nothing left to do")


def new_run(job: Path, run_directory: Path | None) -> StartedRun:
    """Create a new run directory for the job document `job`, with its first attempt.

    run_directory: must not exist yet; None for runs/NAME-TIME. Raises CommandError.
    """
    spec = _read(job)
    require_model_to_start_from(spec, job)
    require_trainer()
    resolved = resolve(spec, data_cache=_data_cache() if spec.data.is_raw else None)
    path = run_directory or Path("runs") / f"{spec.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    begun = StartedRun(RunDirectory(path.resolve()), 1, resolved, None)
    try:
        begun.directory.path.mkdir(parents=True)
    except FileExistsError:
        mend = "name another with --run-directory"
        if begun.directory.spec.exists():
            mend += ", or go on with it: --resume"
        raise BadInputError(f"{path} exists already: {mend}") from None
    except OSError as error:
        raise _cannot_write(path, error, "name another with --run-directory") from None
    try:
        write_atomically(begun.directory.spec, resolved.model_dump_json(indent=1))
        begun.attempt.create()
    except OSError as error:
        shutil.rmtree(begun.directory.path, ignore_errors=True)
        raise _cannot_write(path, error, "name another with --run-directory") from None
    return begun


def next_attempt(path: Path, job: Path | None) -> StartedRun:
    """Create the next attempt of the run in `path`.

    job: changed job document, or None to resume with the document of the run. It may change only settings that leave
    the result the same but for rounding, such as the number of ranks. Raises SucceededError where the run has already
    succeeded, and CommandError, before anything is written, where `job` describes another run or another process works
    on this one.
    """
    directory = RunDirectory(path.resolve())
    resolved = read_submitted(directory, path)
    if job is not None:
        spec = _read(job)
        if different := differences(identity_of(spec), identity_of(resolved.job)):
            raise BadInputError(
                *(f"{job}: {field}" for field in different),
                f"with these settings it is another run than {path}: train it without --resume",
            )
        resolved = resolve(spec, resolved.data_roots, resolved.data_cache)
    require_trainer()
    try:
        with run_lock(directory):
            return _next_attempt(directory, resolved, is_changed=job is not None)
    except RunInUseError as error:
        raise CommandError(f"{error}: wait for it, or stop it: kill {error.holder}") from None
    except OSError as error:
        raise _cannot_write(path, error, "make it writable") from None


def _next_attempt(directory: RunDirectory, resolved: ResolvedJob, *, is_changed: bool) -> StartedRun:
    number = max((_number(path) for path in directory.path.glob("attempt-*")), default=0)
    ended = Outcome.read(directory.attempt(number).outcome)
    if ended and ended.state == "succeeded" and directory.model.exists():
        raise SucceededError(directory, ended)
    newest = newest_checkpoint(directory.checkpoints)
    begun = StartedRun(directory, number + 1, resolved, newest.manifest() if newest else None)
    begun.attempt.create()
    if is_changed:
        # Written to the attempt, not over the document of the run: another process may take the lock of the run before
        # this attempt starts.
        write_atomically(begun.attempt.spec, resolved.model_dump_json(indent=1))
    return begun


def _number(attempt: Path) -> int:
    number = attempt.name.removeprefix("attempt-")
    return int(number) if number.isdecimal() else 0


def read_submitted(directory: RunDirectory, path: Path) -> ResolvedJob:
    """Read the job document of the run in `directory`, as last submitted.

    path: the directory as the user named it, for error messages. Raises BadInputError.
    """
    try:
        return ResolvedJob.model_validate_json(directory.spec.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInputError(f"{path}: not the directory of a run: there is no {directory.spec.name} in it") from None
    except OSError as error:
        raise BadInputError(f"{directory.spec}: {error.strerror}") from None
    except ValidationError as error:
        faults = ConfigError(field_errors(error, ResolvedJob)).errors
        raise BadInputError(*(f"{directory.spec}: {fault}" for fault in faults)) from None


def _read(job: Path) -> JobSpec:
    _, spec = read_job(job)
    spec = data_from_job_file(spec, job)
    require_data_files(spec, job)
    if faults := spec.resources.faults_of_launcher():
        raise BadInputError(*(f"{job}: {fault}" for fault in faults))
    return spec


def _data_cache() -> str:
    """Create the directory for prepared data, the same one that a service started here uses, and return its path.

    Raises CommandError.
    """
    settings = StateSettings()
    try:
        # Created explicitly, not as a parent of the other, so that only its owner can access it.
        make_state_directory(settings.state_directory)
        make_state_directory(settings.prepared_directory, "DLRM_PREPARED_DIRECTORY")
    except StateDirectoryError as error:
        raise CommandError(str(error)) from None
    return str(settings.prepared_directory)


def _cannot_write(path: Path, error: OSError, mend: str) -> BadInputError:
    free = "free space there, or " if error.errno in FULL_DISK else ""
    return BadInputError(f"{path}: {error.strerror}; {free}{mend}")
