"""Job documents from files: TOML or JSON, with errors that name file and line."""

import json
import tomllib
from pathlib import Path
from typing import Any, cast

from dlrm.config import ConfigError, FieldError, JobSpec, faults_of_warm_start, parse_job, starting_from
from dlrm.config.patterns import PatternError, check_scheme, is_remote, required_files, without_credentials
from dlrm.record import NoModelError, TrainedModel
from service.cli.errors import BadInputError


def read_job(path: Path) -> tuple[dict[str, Any], JobSpec]:
    """The document in `path` as it stands, and what it means. Raises BadInputError."""
    document = _read_document(path)
    try:
        return document, parse_job(document)
    except ConfigError as error:
        raise BadInputError(*(f"{path}: {field}" for field in error.errors)) from None


def data_from_job_file(job: JobSpec, path: Path) -> JobSpec:
    """The job with its relative paths, of data and of what it starts from, counted from the directory of its file."""
    base = path.resolve().parent
    absolute = {
        name: [pattern if is_remote(pattern) else str(base / pattern) for pattern in patterns]
        for name, patterns in (("train", job.data.train), ("eval", job.data.eval))
        if patterns
    }
    job = job.model_copy(update={"data": job.data.model_copy(update=absolute)})
    # A link may lead elsewhere tomorrow.
    return starting_from(job, str((base / job.run.warm_start.source).resolve())) if job.run.warm_start else job


def require_data_files(job: JobSpec, path: Path) -> None:
    """Raises BadInputError, one line a pattern, where a pattern of the job in `path` names no file of this machine."""
    faults = [
        str(FieldError(f"data.{name}.{number}", *fault))
        for name, patterns in (("train", job.data.train), ("eval", job.data.eval))
        for number, pattern in enumerate(patterns or [])
        if (fault := fault_of(pattern))
    ]
    if faults:
        raise BadInputError(*(f"{path}: {fault}" for fault in faults))


def require_model_to_start_from(job: JobSpec, path: Path) -> None:
    """Raises BadInputError where the job in `path` starts from a model that is not there, or that it does not fit."""
    warm_start = job.run.warm_start
    if warm_start is None:
        return
    named = Path(warm_start.source)
    try:
        source = TrainedModel.at(named)
        record = source.record()
    except NoModelError as error:
        valid = "the directory of a run that has succeeded, or of its model; the id of a job is for `dlrm submit`"
        raise BadInputError(f"{path}: {FieldError('run.warm_start.from', f'{named} {error}', valid)}") from None
    checkpoint = source.checkpoint if warm_start.optimizer_state else None
    faults = faults_of_warm_start(job, record.model, record.data, checkpoint and checkpoint.manifest().identity)
    if faults:
        raise BadInputError(*(f"{path}: {fault}" for fault in faults))


def fault_of(pattern: str) -> tuple[str, str] | None:
    """Why `pattern` names no file of this machine, and what would be valid; None where it names one, or a remote one,
    which is not looked at.
    """
    if not pattern.strip():
        return "an empty text names no file", "a file, directory or pattern that exists"
    try:
        check_scheme(pattern)
        if is_remote(pattern):
            return None
        others = [file for file in required_files(pattern) if not file.is_file()]
    except PatternError as error:
        return f"{error.message}: {without_credentials(pattern)}", error.valid
    except OSError as error:
        return f"{error.strerror}: {pattern}", "a file, directory or pattern that may be read"
    return (f"is not a regular file: {others[0]}", "a regular file") if others else None


def _read_document(path: Path) -> dict[str, Any]:
    readers = {".toml": tomllib.loads, ".json": _read_json}
    reader = readers.get(path.suffix)
    if reader is None:
        raise BadInputError(f"{path}: a job document is a .toml or a .json file")
    try:
        document = reader(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise BadInputError(f"{path}: not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except _RepeatedKeyError as error:
        raise BadInputError(f"{path}: not valid: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path}: not valid TOML: {error}") from None
    if not isinstance(document, dict):
        raise BadInputError(f'{path}: the document should be an object such as {{"data": {{"train": ["day_*.tsv"]}}}}')
    return cast("dict[str, Any]", document)


class _RepeatedKeyError(ValueError):
    """An object gives two values to one key, of which JSON readers silently drop the first."""


def _read_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKeyError(f"the key {key!r} stands twice in one object; leave one of them out")
        found[key] = value
    return found
