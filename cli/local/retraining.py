"""Preparation of a retraining: the run that goes on from the pruned model of another run."""

from pathlib import Path

from cli.local.errors import BadInputError
from cli.local.run_directory import NewAttempt, create_resolved_run, make_run_path, require_new_directory
from cli.local.run_documents import check_job, read_resolved_job, require_warm_start_model
from cli.local.trainer import require_trainer
from dlrm.config import ConfigError, make_retraining, resolve
from dlrm.record import RunDirectory


def create_retraining(path: Path, share: float, fraction: float) -> NewAttempt:
    """Create the run in runs/NAME-pruned-TIME that prunes the model of the run in `path` and trains on.

    share: of the elements of the dense matrices that are pruned. fraction: length as a share of the run's.
    Raises CommandError.
    """
    source = RunDirectory(path.resolve())
    resolved = read_resolved_job(source, path)
    try:
        job = make_retraining(resolved.job, str(source.path), share, fraction)
    except ConfigError as error:
        raise BadInputError(*(f"{path}: {fault}" for fault in error.errors)) from None
    check_job(job, path)
    require_warm_start_model(job, path)
    require_trainer()
    output = make_run_path(f"{job.name}-pruned")
    require_new_directory(output)
    return create_resolved_run(resolve(job, resolved.data_roots, resolved.data_cache), output)
