"""The vocabulary that grows: its old ids keep their rows. Imports no torch."""

import shutil
from pathlib import Path

from dlrm.config import ResolvedJob
from dlrm.data.encode.encoders import Encoders
from dlrm.data.packed.layout import ENCODERS
from dlrm.data.prepare.base import open_base
from dlrm.record import RunDirectory
from dlrm.warm_start.source import find_source


def known_encoders(resolved: ResolvedJob, directory: RunDirectory) -> Encoders | None:
    """The encoders of the model that the run starts from; None where it starts from nothing, or needs none.

    The first attempt keeps a copy in the run directory: later ones do not need the model, which may be gone by then.
    Raises DataError.
    """
    if resolved.job.run.warm_start is None or resolved.job.data.synthetic is not None:
        return None
    kept = directory.base
    if kept.exists():
        return open_base(kept)
    source = find_source(resolved, directory)
    assert source is not None, "there is a warm start"
    encoders = open_base(source.path)
    part = kept.with_name(f"{kept.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    encoders.save(part / ENCODERS)
    part.rename(kept)
    return encoders


def how_to_extend(resolved: ResolvedJob) -> str:
    """What makes packed rows that fit the model."""
    assert resolved.job.run.warm_start is not None, "there is a warm start"
    named = Path(resolved.job.run.warm_start.source)
    model = RunDirectory(named).model if RunDirectory(named).model.is_dir() else named
    return f"rows prepared with `dlrm prepare --extend {model}`"
