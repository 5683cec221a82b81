"""Resolution of a job's `run.warm_start.from`: another job of this service, or a directory under the data roots."""

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from dlrm.config import ConfigError, FieldError, JobSpec, find_warm_start_faults, replace_warm_start_source
from dlrm.config.patterns import is_remote
from dlrm.record import NoModelError, TrainedModel
from service.access.data_roots import DataAccess
from service.access.principal import Principal
from service.access.visibility import get_visible_job
from service.database import Database
from service.http.problems import ProblemError
from service.ids import is_id
from service.jobs.paths import (
    PathError,
    check_all_below,
    describe_roots,
    find_directory_under_roots,
    resolve_unseen_path,
)
from service.launchers.registry import Launchers
from service.store.job_repository import JobRepository
from service.store.models import Job
from service.store.run_facts import RunFacts
from service.store.states import JobState


class WarmStarts:
    """Resolver of the model that a job starts from."""

    def __init__(
        self, database: Database, access: DataAccess, private: Sequence[Path], facts: RunFacts, launchers: Launchers
    ) -> None:
        """Read nothing in the directories `private` of the service itself."""
        self._database = database
        self._access = access
        self._private = private
        self._facts = facts
        self._launchers = launchers

    def resolve(self, job: JobSpec, principal: Principal, launcher: str) -> JobSpec:
        """Return `job`, to be run by `launcher`, with the directory of the run or model that it starts from.

        A job id means the run of that job; `principal` must be allowed to know of the job. If the service does not see
        the run, the reported path or URI counts, and only the trainer checks what is there. A path is resolved and
        checked as data paths are, and only the model is read from it, because reading a checkpoint can run any code
        that its author put into it. Raises ConfigError if there is no such model or it does not fit the job.
        """
        warm_start = job.run.warm_start
        if warm_start is None:
            return job
        name = warm_start.source
        is_job = is_id(name, "job")
        if warm_start.optimizer_state and not is_job:
            message = f"{name!r} is not a job of this service, and other checkpoints are not read"
            valid = "false, or in `from` the id of a job that has SUCCEEDED"
            raise ConfigError([FieldError("run.warm_start.optimizer_state", message, valid)])
        own, roots = self._launchers[launcher], self._access.list_roots(launcher, principal)
        try:
            if is_job:
                source = self._find_run(_find_succeeded_job(name, principal, self._database), launcher)
            else:
                source = _find_model_in_directory(name, roots, self._private) if own.shares_files else None
                source = source or resolve_unseen_path(name, roots)
            if isinstance(source, str):
                return replace_warm_start_source(job, source)
            record = source.read_record()
        except (NoModelError, PathError, ValueError) as error:
            message = f"{name!r} {error}" if isinstance(error, NoModelError) else str(error)
            under = describe_roots(roots)
            valid = f"the id of a job that has SUCCEEDED, or the directory of a run or of its model under {under}"
            raise ConfigError([FieldError("run.warm_start.from", message, valid)]) from None
        checkpoint = source.checkpoint if warm_start.optimizer_state else None
        identity = checkpoint and checkpoint.read_manifest().identity
        if faults := find_warm_start_faults(job, record.model, record.data, identity):
            raise ConfigError(faults)
        return replace_warm_start_source(job, str((source.run or source).path))

    def _find_run(self, earlier: Job, launcher: str) -> TrainedModel | str:
        """Find the run of an earlier job as a job of `launcher` sees it: its path or URI where the service does not see
        it. Raises NoModelError if there is no model, or jobs of `launcher` do not see it.
        """
        is_seen = self._facts.shares_files(earlier)
        if is_seen and self._launchers[launcher].shares_files:
            return TrainedModel.find(Path(earlier.run_directory).resolve())
        run = earlier.run_directory if is_seen else _find_reported_run(earlier, self._facts)
        if earlier.launcher != launcher and not is_remote(run):
            raise NoModelError(
                f"was run by the launcher {earlier.launcher!r}, and is in a directory that jobs of {launcher!r} do not "
                "see; copy its model to where the data is, and name that directory"
            )
        return run


def hold_source(job: JobSpec, session: Session) -> None:
    """Keep the job whose model `job` starts from, if there is one, until the transaction of `session` ends.

    Raises ConfigError if it was deleted since `WarmStarts.resolve`.
    """
    warm_start = job.run.warm_start
    if warm_start is None or not is_id(warm_start.source, "job"):
        return
    source = JobRepository(session).hold(warm_start.source)
    if source is None or source.deleting_at is not None:
        message = f"{warm_start.source!r} is not a job of this service"
        raise ConfigError([FieldError("run.warm_start.from", message, "the id of a job that has SUCCEEDED")])


def _find_succeeded_job(job_id: str, principal: Principal, database: Database) -> Job:
    """Return another job, whose model a job can start from.

    Raises NoModelError if there is no such job that `principal` may know of, or it has not succeeded.
    """
    with database.read() as session:
        try:
            job = get_visible_job(session, job_id, principal)
        except ProblemError:
            raise NoModelError("is not a job of this service") from None
        if job.state != JobState.SUCCEEDED:
            raise NoModelError(f"is {job.state}, but only a job that has SUCCEEDED has a model")
        return job


def _find_reported_run(job: Job, facts: RunFacts) -> str:
    """Return the path or URI of a run whose directory the service does not see. Raises NoModelError."""
    run = facts.find_run(job) if facts.find_model(job) else None
    if run is None:
        raise NoModelError("has not reported where its model is")
    return run


def _find_model_in_directory(path: str, roots: Sequence[str], private: Sequence[Path]) -> TrainedModel:
    """Return the model in a directory under the data roots, and in no private directory.

    Raises NoModelError if there is no model, and PathError if the directory is not allowed.
    """
    source = TrainedModel.find(find_directory_under_roots(path, roots, private))
    check_all_below(source.path, path, roots, private)
    return source
