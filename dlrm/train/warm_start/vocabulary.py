"""Vocabularies of a warm start: old ids keep their rows, new ones are added. Imports no torch."""

import shutil
from pathlib import Path

from dlrm.config import ResolvedJob
from dlrm.config.patterns import is_remote
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS
from dlrm.data.prepare.fit import open_base
from dlrm.record import RunDirectory, sync_directory, sync_tree
from dlrm.train.warm_start.source import FIELD, find_source

_ANEW = "or a new model, of these columns and ids, without run.warm_start"


def load_base_encoders(resolved: ResolvedJob, directory: RunDirectory) -> Encoders | None:
    """Return the encoders of the model that the run starts from; None if it needs none.

    The first attempt keeps a copy in the run directory: later ones do not need the model, which may be gone by then.
    A copy that cannot be read is replaced as long as the model exists. Raises DataError.
    """
    if resolved.job.run.warm_start is None or resolved.job.data.synthetic is not None:
        return None
    copy = directory.base
    if not copy.exists():
        return _save_encoders(_load_source_encoders(resolved, directory), copy)
    try:
        return open_base(copy)
    except DataError as damage:
        try:
            encoders = _load_source_encoders(resolved, directory)
        except DataError as error:
            message = f"{damage.message}; nor can they be read from the model again: {error}"
            raise DataError(message, copy, field=FIELD, valid="the model at its old path, or a new run") from None
        return _save_encoders(encoders, copy)


def _load_source_encoders(resolved: ResolvedJob, directory: RunDirectory) -> Encoders:
    source = find_source(resolved, directory)
    assert source is not None, "there is a warm start"
    return open_base(source.path)


def _save_encoders(encoders: Encoders, directory: Path) -> Encoders:
    """Save encoders in `directory`, which exists whole or not at all, even after a power cut."""
    part = directory.with_name(f"{directory.name}.part")
    for old in (part, directory):
        if old.exists():
            shutil.rmtree(old)
    encoders.save(part / ENCODERS)
    sync_tree(part)
    part.rename(directory)
    sync_directory(directory.parent)
    return encoders


def describe_extension(resolved: ResolvedJob) -> str:
    """Describe how to prepare rows that fit the model, and what to do without such rows."""
    assert resolved.job.run.warm_start is not None, "there is a warm start"
    name = resolved.job.run.warm_start.source
    if is_remote(name):
        return f"rows prepared with `dlrm prepare --extend` and a copy of the model in {name}; {_ANEW}"
    source = Path(name)
    model = RunDirectory(source).model if RunDirectory(source).model.is_dir() else source
    return f"rows prepared with `dlrm prepare --extend {model}`; {_ANEW}"
