"""The model that a run starts from, found and compared with the job. Imports no torch."""

from pathlib import Path

from dlrm.config import ResolvedJob, faults_of_warm_start
from dlrm.data.errors import DataError
from dlrm.data.roots import Roots
from dlrm.record import ModelRecord, NoModelError, RunDirectory, TrainedModel

FIELD = "run.warm_start.from"
_VALID = "the directory of a run that has succeeded, or of its model"


def find_source(resolved: ResolvedJob, directory: RunDirectory) -> TrainedModel | None:
    """Find the model that the run in `directory` starts from; None where there is no warm start.

    Raises DataError where there is none, where it is not to be read, and where the job does not fit it.
    """
    warm_start = resolved.job.run.warm_start
    if warm_start is None:
        return None
    named = Path(warm_start.source)
    try:
        source = TrainedModel.at(named)
        # The runs of a service lie beside each other: to them it has resolved the id of a job.
        if named.parent != directory.path.parent:
            _check_in_sight(source.path, Roots(resolved.data_roots))
        record = source.record()
    except NoModelError as error:
        raise damaged(named, str(error)) from None
    checkpoint = source.checkpoint if warm_start.optimizer_state else None
    identity = checkpoint and checkpoint.manifest().identity
    faults = faults_of_warm_start(resolved.job, record.model, record.data, identity)
    if faults:
        raise DataError("; ".join(map(str, faults)), named)
    return source


def _check_in_sight(model: Path, roots: Roots) -> None:
    for file in [model, *model.rglob("*")]:
        roots.check(file, file, FIELD, "a directory")


def record_of(source: TrainedModel) -> ModelRecord:
    """Read the model's record. Raises DataError."""
    try:
        return source.record()
    except NoModelError as error:
        raise damaged(source.path, str(error)) from None


def damaged(path: Path, message: str) -> DataError:
    """Make the error of a model that is missing or incomplete."""
    return DataError(message, path, field=FIELD, valid=_VALID)
