"""Resolution of a job's `run.warm_start.from`: another job of this service, or a directory under the data roots."""

from pathlib import Path

from sqlalchemy.orm import Session

from dlrm.config import ConfigError, FieldError, JobSpec, find_warm_start_faults, replace_warm_start_source
from dlrm.record import NoModelError, TrainedModel
from service.database import Database
from service.http.problems import ProblemError
from service.ids import is_id
from service.jobs.models import Job
from service.jobs.paths import PathError, check_all_below, find_directory_under_roots
from service.jobs.repository import JobRepository
from service.jobs.run_facts import RunFacts
from service.jobs.states import JobState
from service.jobs.visibility import get_visible_job
from service.keys.principal import Principal
from service.settings import Settings


def resolve_warm_start(
    job: JobSpec, principal: Principal, database: Database, settings: Settings, facts: RunFacts
) -> JobSpec:
    """Return `job` with the directory of the run or model that it starts from.

    A job id means the run of that job, of which `principal` must be allowed to know. Where the service does not see
    that, it is the path or URI that was reported, and only the trainer checks what is there. A path is resolved and
    checked as data paths are, and only the model is read from it, because reading a checkpoint can run any code that
    its author put into it. Raises ConfigError where there is no such model or it does not fit the job.
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
    try:
        if is_job:
            earlier = _find_succeeded_job(name, principal, database)
            if not facts.shares_files(earlier):
                return replace_warm_start_source(job, _find_reported_run(earlier, facts))
            source = TrainedModel.find(Path(earlier.run_directory).resolve())
        else:
            source = _find_model_in_directory(name, settings)
        record = source.read_record()
    except (NoModelError, PathError) as error:
        message = f"{name!r} {error}" if isinstance(error, NoModelError) else str(error)
        roots = " or ".join(settings.data_roots)
        valid = f"the id of a job that has SUCCEEDED, or the directory of a run or of its model under {roots}"
        raise ConfigError([FieldError("run.warm_start.from", message, valid)]) from None
    checkpoint = source.checkpoint if warm_start.optimizer_state else None
    faults = find_warm_start_faults(job, record.model, record.data, checkpoint and checkpoint.read_manifest().identity)
    if faults:
        raise ConfigError(faults)
    return replace_warm_start_source(job, str((source.run or source).path))


def hold_source(job: JobSpec, session: Session) -> None:
    """Keep the job whose model `job` starts from until the transaction of `session` ends, where there is such a job.

    Raises ConfigError where it was deleted since `resolve_warm_start`.
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

    Raises NoModelError where there is no such job that `principal` may know of, or it has not succeeded.
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


def _find_model_in_directory(path: str, settings: Settings) -> TrainedModel:
    """Return the model in a directory under the data roots.

    Raises NoModelError where there is no model, and PathError where the directory is not allowed.
    """
    roots, private = settings.data_roots, settings.private_directories
    source = TrainedModel.find(find_directory_under_roots(path, roots, private))
    check_all_below(source.path, path, roots, private)
    return source
