"""Vocabularies of a warm start: old ids keep their rows, new ones are added. Imports no torch."""

import shutil
from pathlib import Path

from dlrm.config import ResolvedJob
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS
from dlrm.data.prepare.base import open_base
from dlrm.record import RunDirectory, sync_directory, sync_tree
from dlrm.train.warm_start.source import FIELD, find_source


def known_encoders(resolved: ResolvedJob, directory: RunDirectory) -> Encoders | None:
    """Return the encoders of the model that the run starts from; None where it needs none.

    The first attempt keeps a copy in the run directory: later ones do not need the model, which may be gone by then.
    A copy that cannot be read is made anew as long as the model is there. Raises DataError.
    """
    if resolved.job.run.warm_start is None or resolved.job.data.synthetic is not None:
        return None
    kept = directory.base
    if not kept.exists():
        return _keep(_encoders_of_source(resolved, directory), kept)
    try:
        return open_base(kept)
    except DataError as damage:
        try:
            encoders = _encoders_of_source(resolved, directory)
        except DataError as error:
            message = f"{damage.message}; nor can they be taken from the model again: {error}"
            raise DataError(message, kept, field=FIELD, valid="the model where it was, or a new run") from None
        return _keep(encoders, kept)


def _encoders_of_source(resolved: ResolvedJob, directory: RunDirectory) -> Encoders:
    source = find_source(resolved, directory)
    assert source is not None, "there is a warm start"
    return open_base(source.path)


def _keep(encoders: Encoders, kept: Path) -> Encoders:
    """Save encoders in the directory `kept`, which exists whole or not at all, even after a power cut."""
    part = kept.with_name(f"{kept.name}.part")
    for left in (part, kept):
        if left.exists():
            shutil.rmtree(left)
    encoders.save(part / ENCODERS)
    sync_tree(part)
    part.rename(kept)
    sync_directory(kept.parent)
    return encoders


def how_to_extend(resolved: ResolvedJob) -> str:
    """Say how to make packed rows that fit the model."""
    assert resolved.job.run.warm_start is not None, "there is a warm start"
    named = Path(resolved.job.run.warm_start.source)
    model = RunDirectory(named).model if RunDirectory(named).model.is_dir() else named
    return f"rows prepared with `dlrm prepare --extend {model}`"
