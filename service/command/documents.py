"""Job documents from files: TOML or JSON, with errors that name file and line."""

import json
import tomllib
from pathlib import Path
from typing import Any, cast

from dlrm.config import ConfigError, JobSpec, parse_job
from service.command.errors import BadInputError


def read_job(path: Path) -> tuple[dict[str, Any], JobSpec]:
    """The document in `path` as it stands, and what it means. Raises BadInputError."""
    document = _read_document(path)
    try:
        return document, parse_job(document)
    except ConfigError as error:
        raise BadInputError(*(f"{path}: {field}" for field in error.errors)) from None


def data_from_job_file(job: JobSpec, path: Path) -> JobSpec:
    """The job with its relative data paths counted from the directory of its file."""
    base = path.resolve().parent
    absolute = {
        name: [str(base / pattern) for pattern in patterns]
        for name, patterns in (("train", job.data.train), ("eval", job.data.eval))
        if patterns
    }
    return job.model_copy(update={"data": job.data.model_copy(update=absolute)})


def _read_document(path: Path) -> dict[str, Any]:
    readers = {".toml": tomllib.loads, ".json": json.loads}
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
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path}: not valid TOML: {error}") from None
    if not isinstance(document, dict):
        raise BadInputError(f'{path}: the document should be an object such as {{"data": {{"train": ["day_*.tsv"]}}}}')
    return cast("dict[str, Any]", document)
