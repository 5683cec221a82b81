"""Preparation of an attempt of `dlrm train`, in a new run directory or in the directory of a run to resume."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.local.errors import BadInputError, CommandError
from cli.local.run_documents import (
    change_job,
    check_job,
    read_absolute_job,
    read_resolved_job,
    require_dividing_ranks,
    require_warm_start_model,
    resolve_for_run,
)
from cli.local.run_store import find_new_store
from cli.local.trainer import require_trainer
from dlrm.config import (
    ResolvedJob,
    list_differences,
    make_identity,
    resolve,
)
from dlrm.record import (
    FULL_DISK,
    AttemptDirectory,
    CheckpointManifest,
    Outcome,
    RunDirectory,
    RunInUseError,
    RunStoreRecord,
    find_newest_checkpoint,
    hold_run_lock,
    write_atomically,
)
from dlrm.record.state_directory import StateDirectoryError, StateSettings, make_state_directory
from hostinfo.node_place import NodePlace


@dataclass(frozen=True)
class NewAttempt:
    """Attempt that is about to start: its run directory exists."""

    directory: RunDirectory
    number: int
    """Number of the attempt, counted from 1."""
    resolved: ResolvedJob
    checkpoint: CheckpointManifest | None
    """Newest checkpoint, from which the attempt should resume; None if it starts from the beginning. The trainer may
    find it damaged and resume from an older one."""

    @property
    def attempt(self) -> AttemptDirectory:
        return self.directory.attempt(self.number)


class SucceededError(Exception):
    """Exception for a run to resume that has already succeeded."""

    def __init__(self, directory: RunDirectory, outcome: Outcome) -> None:
        self.directory = directory
        self.outcome = outcome
        super().__init__(f"{directory.path}: the run has already succeeded; nothing is left to do")


class DifferentRunError(BadInputError):
    """Error for a changed document that would make a run to resume a different one."""

    def __init__(self, differences: Sequence[str], remedy: str) -> None:
        """Store the differences. remedy: what trains the changed document."""
        self.differences = differences
        super().__init__(*differences, remedy)


def create_run(
    job: Path,
    run_directory: Path | None,
    settings: Sequence[str] | None = None,
    place: NodePlace | None = None,
    run_store: str | None = None,
    remedy: str = "name another directory with --run-directory",
) -> NewAttempt:
    """Create a new run directory for the job document `job`, with its first attempt.

    run_directory: must not exist yet; None for runs/NAME-TIME. settings: arguments of `--set`. place: of this machine
    among several that run the job; None if it is the only one. run_store: value of --run-store. remedy: what helps
    if the directory cannot be written. Raises CommandError.
    """
    spec = read_absolute_job(job, settings)
    check_job(spec, job, place)
    require_warm_start_model(spec, job)
    require_trainer()
    resolved = resolve(spec, data_cache=_make_data_cache() if spec.data.is_raw else None)
    path = run_directory or make_run_path(spec.name)
    require_new_directory(path)
    return create_resolved_run(resolved, path, find_new_store(run_store, path), remedy)


def create_resolved_run(
    resolved: ResolvedJob, path: Path, store: RunStoreRecord | None = None, remedy: str = "make it writable"
) -> NewAttempt:
    """Create the run directory `path`, which does not exist, with its first attempt. Raises BadInputError.

    store: bucket in which the run is kept; None if it is kept here alone. remedy: as for `create_run`.
    """
    started = NewAttempt(RunDirectory(path.resolve()), 1, resolved, None)
    try:
        started.directory.path.mkdir(parents=True)
    except OSError as error:
        raise _make_write_error(path, error, remedy) from None
    try:
        write_atomically(started.directory.spec, resolved.model_dump_json(indent=1))
        if store is not None:
            store.write(started.directory.run_store)
        started.attempt.create()
    except OSError as error:
        shutil.rmtree(started.directory.path, ignore_errors=True)
        raise _make_write_error(path, error, remedy) from None
    return started


def make_run_path(name: str) -> Path:
    """Return the default run directory of a job called `name` that starts now."""
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def require_new_directory(path: Path, option: str = "--run-directory") -> None:
    """Raise BadInputError if the run directory `path` exists already. option: names another one."""
    if not path.exists():
        return
    remedy = f"name another directory with {option}"
    if RunDirectory(path).spec.exists():
        remedy += f", or resume this run: dlrm resume {path}"
    raise BadInputError(f"{path} already exists: {remedy}")


def create_next_attempt(
    path: Path, job: Path | None, settings: Sequence[str] | None = None, place: NodePlace | None = None
) -> NewAttempt:
    """Create the next attempt of the run in `path`. place: as for `create_run`.

    job: changed job document, or None to resume with the document of the run. settings: arguments of `--set`, which
    change the document. Both may change only settings that change the result by no more than rounding, such as the
    number of ranks. Raises SucceededError if the run has already succeeded, and CommandError, before anything is
    written, if the document describes another run or another process works on this one.
    """
    directory = RunDirectory(path.resolve())
    resolved = read_resolved_job(directory, path)
    is_changed = job is not None or bool(settings)
    if is_changed:
        require_dividing_ranks(resolved.asked or resolved.job, job, settings, path)
        spec = (
            change_job(resolved.asked or resolved.job, settings, path)
            if job is None
            else read_absolute_job(job, settings)
        )
        check_job(spec, job or path, place)
        now = resolve_for_run(spec, resolved, job or path)
        if differences := list_differences(make_identity(now.job), make_identity(resolved.job)):
            raise DifferentRunError(
                [f"{'--set' if job is None else job}: {difference}" for difference in differences],
                f"with these settings it is a different run from {path}: train it with `dlrm train`",
            )
        resolved = now.model_copy(update={"decisions": resolved.decisions})
    require_trainer()
    try:
        with hold_run_lock(directory):
            return _create_attempt(directory, resolved, is_changed=is_changed)
    except RunInUseError as error:
        raise CommandError(f"{error}: {error.advice}") from None
    except OSError as error:
        raise _make_write_error(path, error, "make it writable") from None


def require_unfinished(directory: RunDirectory) -> int:
    """Return the number of the newest attempt, 0 if there is none. Raises SucceededError if the run is done."""
    number = max((_parse_number(path) for path in directory.path.glob("attempt-*")), default=0)
    outcome = Outcome.read(directory.attempt(number).outcome)
    if outcome and outcome.state == "succeeded" and (directory.model.exists() or _is_of_other_node(directory)):
        raise SucceededError(directory, outcome)
    return number


def _is_of_other_node(directory: RunDirectory) -> bool:
    """Whether this is the directory of a node other than node 0, which has the model."""
    record = RunStoreRecord.read(directory.run_store)
    return record is not None and bool(record.node)


def _create_attempt(directory: RunDirectory, resolved: ResolvedJob, *, is_changed: bool) -> NewAttempt:
    number = require_unfinished(directory)
    newest = find_newest_checkpoint(directory.checkpoints)
    started = NewAttempt(directory, number + 1, resolved, newest.read_manifest() if newest else None)
    started.attempt.create()
    if is_changed:
        # Written to the attempt, not over the document of the run: another process may take the lock of the run before
        # this attempt starts.
        write_atomically(started.attempt.spec, resolved.model_dump_json(indent=1))
    return started


def _parse_number(attempt: Path) -> int:
    number = attempt.name.removeprefix("attempt-")
    return int(number) if number.isdecimal() else 0


def _make_data_cache() -> str:
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


def _make_write_error(path: Path, error: OSError, remedy: str) -> BadInputError:
    free = "free space there, or " if error.errno in FULL_DISK else ""
    return BadInputError(f"{path}: {error.strerror}; {free}{remedy}")
