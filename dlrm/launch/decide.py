"""Decides what a job document left open, once the rows of the run are known."""

from pathlib import Path

from dlrm.config import DataFacts, ModelConfig, ResolvedJob, count_synthetic_train_rows, resolve_with_rows
from dlrm.data.packed.layout import open_packed_meta
from dlrm.record import PreparedData, RunDirectory, write_atomically
from dlrm.train.warm_start.source import find_source, read_record


def decide_open_fields(directory: RunDirectory, resolved: ResolvedJob) -> ResolvedJob:
    """Decide the open fields of a run's document, write it to the run directory, and return it.

    A document that was decided for an earlier attempt stays as it is. Raises DataError and OSError.
    """
    if resolved.asked is None:
        return resolved
    decided = resolve_with_rows(resolved, _find_facts(directory, resolved))
    write_atomically(directory.spec, decided.model_dump_json(indent=1))
    return decided


def _find_facts(directory: RunDirectory, resolved: ResolvedJob) -> DataFacts:
    source = find_source(resolved, directory)
    model = None if source is None else ModelConfig.model_validate(read_record(source).model)
    if resolved.job.data.synthetic is not None:
        return DataFacts(num_train_rows=count_synthetic_train_rows(resolved.job.data), source=model)
    prepared = PreparedData.read(directory.data)
    assert prepared is not None, "rows are prepared before anything is decided by them"
    meta = open_packed_meta(Path(prepared.directory))
    return DataFacts(num_train_rows=meta.splits["train"].num_rows, source=model)
