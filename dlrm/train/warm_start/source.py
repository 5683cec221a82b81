"""Search for the model that a run starts from, and its comparison with the job. Imports no torch."""

from pathlib import Path

from dlrm.config import ResolvedJob, find_warm_start_faults
from dlrm.config.patterns import is_remote
from dlrm.data.errors import DataError
from dlrm.data.roots import Roots
from dlrm.record import ModelRecord, NoModelError, RunDirectory, TrainedModel

FIELD = "run.warm_start.from"
_VALID = "the directory of a run that has succeeded, or of its model"


def find_source(resolved: ResolvedJob, directory: RunDirectory) -> TrainedModel | None:
    """Find the model that the run in `directory` starts from; None if there is no warm start.

    Raises DataError if there is no such model, if it must not be read, and if the job does not fit it.
    """
    warm_start = resolved.job.run.warm_start
    if warm_start is None:
        return None
    # The launch process has fetched what is in a bucket.
    is_fetched = is_remote(warm_start.source)
    path = directory.source if is_fetched else Path(warm_start.source)
    try:
        source = TrainedModel.find(path)
        # Runs of a service are in one directory; the service has resolved a job's id to one of them.
        if not is_fetched and path.parent != directory.path.parent:
            _check_access(source.path, Roots(resolved.data_roots))
        record = source.read_record()
    except NoModelError as error:
        raise make_source_error(path, str(error)) from None
    if record.compression is not None:
        raise DataError("is a compressed model", path, field=FIELD, valid="the model that it was made from")
    checkpoint = source.checkpoint if warm_start.optimizer_state else None
    identity = checkpoint and checkpoint.read_manifest().identity
    document = resolved.asked or resolved.job
    faults = find_warm_start_faults(document, record.model, record.data, identity)
    if faults:
        raise DataError("; ".join(map(str, faults)), path)
    return source


def _check_access(model: Path, roots: Roots) -> None:
    for file in [model, *model.rglob("*")]:
        roots.check(file, file, FIELD, "a directory")


def read_record(source: TrainedModel) -> ModelRecord:
    """Read the model's record. Raises DataError."""
    try:
        return source.read_record()
    except NoModelError as error:
        raise make_source_error(source.path, str(error)) from None


def make_source_error(path: Path | str, message: str) -> DataError:
    """Make the error of a model that is missing or incomplete."""
    return DataError(message, path, field=FIELD, valid=_VALID)
