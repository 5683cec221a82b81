"""Resolution of a job's `run.warm_start.from`: another job of this service, or a directory under the data roots."""

from pathlib import Path

from dlrm.config import ConfigError, FieldError, JobSpec, faults_of_warm_start, starting_from
from dlrm.record import NoModelError, TrainedModel
from service.database import Database
from service.ids import is_id
from service.jobs.paths import PathError, check_all_below, directory_under_roots
from service.jobs.repository import JobRepository
from service.jobs.states import JobState
from service.settings import Settings


def with_warm_start(job: JobSpec, database: Database, settings: Settings) -> JobSpec:
    """Return `job` with the directory of the run or model that it starts from.

    A job id stands for the run of that job. A path is resolved and checked as data paths are, and only the model is
    read from it, because reading a checkpoint can run any code that its author put into it. Raises ConfigError where
    there is no such model or it does not fit the job.
    """
    warm_start = job.run.warm_start
    if warm_start is None:
        return job
    named = warm_start.source
    is_job = is_id(named, "job")
    if warm_start.optimizer_state and not is_job:
        message = f"{named!r} is no job of this service, and checkpoints of others are not read"
        valid = "false, or `from` the id of a job that has SUCCEEDED"
        raise ConfigError([FieldError("run.warm_start.optimizer_state", message, valid)])
    try:
        source = _model_of_job(named, database) if is_job else _model_in_directory(named, settings)
        record = source.record()
    except (NoModelError, PathError) as error:
        message = f"{named!r} {error}" if isinstance(error, NoModelError) else str(error)
        roots = " or ".join(settings.data_roots)
        valid = f"the id of a job that has SUCCEEDED, or the directory of a run or of its model under {roots}"
        raise ConfigError([FieldError("run.warm_start.from", message, valid)]) from None
    checkpoint = source.checkpoint if warm_start.optimizer_state else None
    faults = faults_of_warm_start(job, record.model, record.data, checkpoint and checkpoint.manifest().identity)
    if faults:
        raise ConfigError(faults)
    return starting_from(job, str((source.run or source).path))


def _model_of_job(job_id: str, database: Database) -> TrainedModel:
    """Return the model of another job. Raises NoModelError where the job does not exist or has not succeeded."""
    with database.read() as session:
        job = JobRepository(session).get(job_id)
        if job is None:
            raise NoModelError("is no job of this service")
        if job.state != JobState.SUCCEEDED:
            raise NoModelError(f"is {job.state}, and only a job that has SUCCEEDED leaves a model")
        directory = Path(job.run_directory)
    return TrainedModel.at(directory.resolve())


def _model_in_directory(named: str, settings: Settings) -> TrainedModel:
    """Return the model in a directory under the data roots.

    Raises NoModelError where there is no model, and PathError where the directory is not allowed.
    """
    roots, private = settings.data_roots, settings.private_directories
    source = TrainedModel.at(directory_under_roots(named, roots, private))
    check_all_below(source.path, named, roots, private)
    return source
