"""Reading of a sweep's document, and of the job that its trials change."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cli.experiments.sweep.check import list_emptied, list_faults, list_table_faults
from cli.experiments.sweep.config import SweepConfig
from cli.local.documents import read_document, read_job
from cli.local.errors import BadInputError
from dlrm.config import ConfigError, parse_job, translate_errors

MAX_NAME = 40
"""Largest number of characters of a name."""


@dataclass(frozen=True)
class Sweep:
    """A sweep with its job document."""

    path: Path
    """File of the sweep's document, for error messages."""
    config: SweepConfig
    job_path: Path
    """File that the relative paths of the job document are beside."""
    job: dict[str, Any]
    """Job document as written, which every trial changes."""


def read_sweep(path: Path) -> Sweep:
    """Read the document of a sweep. Raises BadInputError, with a line for each fault."""
    document = read_document(path)
    if table_faults := list_table_faults(document):
        raise BadInputError(*(f"{path}: {fault}" for fault in table_faults))
    try:
        config = SweepConfig.model_validate({"name": _make_name(path)} | document)
    except ValidationError as error:
        faults = ConfigError(translate_errors(error, SweepConfig)).errors
    else:
        faults = list_faults(config)
        if not faults:
            job_path, job = _read_base(path, config)
            if not (faults := list_emptied(config, job)):
                return Sweep(path, config, job_path, job)
    raise BadInputError(*(f"{path}: {fault}" for fault in faults))


def _make_name(path: Path) -> str:
    """Return the name of a file as a name of a sweep."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in path.stem)
    return name[:MAX_NAME].strip("-") or "sweep"


def _read_base(path: Path, config: SweepConfig) -> tuple[Path, dict[str, Any]]:
    """Read the job document, from its own file or from the sweep's, and return the file with it."""
    if isinstance(config.job, str):
        job = path.parent / config.job
        if not job.is_file():
            raise BadInputError(f"{path}: job: no file: {job} (valid: a path relative to the sweep's file, or a table)")
        return job, read_job(job)[0]
    try:
        parse_job(config.job)
    except ConfigError as error:
        raise BadInputError(*(f"{path}: job.{fault}" for fault in error.errors)) from None
    return path, config.job
