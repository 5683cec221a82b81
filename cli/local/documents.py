"""Job documents of files, with their settings, paths and models checked; errors name the file and the field."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.local.document_file import read_document
from cli.local.errors import BadInputError
from cli.local.run_store import local_record
from cli.local.set_option import apply_settings, name_source, parse_settings
from dlrm.config import ConfigError, FieldError, JobSpec, find_warm_start_faults, parse_job, replace_warm_start_source
from dlrm.config.patterns import PatternError, check_scheme, hide_credentials, is_remote, require_files
from dlrm.record import NoModelError, TrainedModel

_INFERRED_FIELDS = ("data.train", "data.eval", "data.format", "data.schema", "data.weight_column", "data.vocabulary")
"""Fields of a job document whose valid values depend on the data files."""


def read_job(path: Path, settings: Sequence[str] | None = None) -> tuple[dict[str, Any], JobSpec]:
    """Read the job document in `path`, and return it both as written and as a validated JobSpec.

    settings: arguments of `--set`, which are part of both. Raises BadInputError.
    """
    return parse_with_settings(read_document(path), settings, str(path))


def parse_with_settings(
    document: Mapping[str, Any], settings: Sequence[str] | None, source: str
) -> tuple[dict[str, Any], JobSpec]:
    """Apply the arguments of `--set` to a job document, and return it as a document and as a validated JobSpec.

    source: what error messages name where the fault is not in a setting. Raises BadInputError.
    """
    parsed = parse_settings(settings)
    changed = apply_settings(document, parsed)
    try:
        return changed, parse_job(changed)
    except ConfigError as error:
        raise BadInputError(
            *(f"{name_source(field.field, parsed, source)}: {field}" for field in error.errors)
        ) from None


def check_settings_early(settings: Sequence[str] | None) -> None:
    """Check the arguments of `--set` for a job document that is inferred later, as far as they do not depend on it.

    Raises BadInputError if one is no field, or has a value that no such document may have.
    """
    early = [
        text
        for text, setting in zip(settings or (), parse_settings(settings), strict=True)
        if not any(f"{field}.".startswith(f"{setting.field}.") for field in _INFERRED_FIELDS)
        and not setting.field.startswith(tuple(f"{field}." for field in _INFERRED_FIELDS))
    ]
    # What the document has besides is of no concern, so that every fault is one of the settings.
    parse_with_settings({"data": {"train": ["rows"]}}, early, "--set")


def check_settings(document: Mapping[str, Any], settings: Sequence[str] | None) -> None:
    """Check that the arguments of `--set` leave a valid job document valid. Raises BadInputError if they do not."""
    try:
        parse_job(document)
    except ConfigError:
        # Its own faults are not those of the settings, which may even mend them.
        return
    parse_with_settings(document, settings, "--set")


def make_paths_absolute(job: JobSpec, path: Path) -> JobSpec:
    """Return `job` with its relative paths, of data and of a warm start, made absolute.

    They are relative to the directory of the job file `path`; URIs stay as they are.
    """
    base = path.resolve().parent
    absolute = {
        name: [pattern if is_remote(pattern) else str(base / pattern) for pattern in patterns]
        for name, patterns in (("train", job.data.train), ("eval", job.data.eval))
        if patterns
    }
    job = job.model_copy(update={"data": job.data.model_copy(update=absolute)})
    # Symbolic links are resolved because their targets may change before the job starts.
    warm_start = job.run.warm_start
    if warm_start is None or is_remote(warm_start.source):
        return job
    return replace_warm_start_source(job, str((base / warm_start.source).resolve()))


def require_data_files(job: JobSpec, path: Path) -> None:
    """Check that every data pattern of the job in `path` names files of this machine; remote patterns are not checked.

    Raises BadInputError, with one line for each pattern that names no file. Where the same relative path names files
    in the present directory, the line has both paths.
    """
    faults = [
        str(FieldError(field, *(_find_in_present_directory(pattern, path.resolve().parent) or fault)))
        for field, pattern in _list_patterns(job)
        if (fault := find_pattern_fault(pattern))
    ]
    if faults:
        raise BadInputError(*(f"{path}: {fault}" for fault in faults))


def list_beside(job: JobSpec, path: Path) -> dict[str, str]:
    """List the relative data paths of the job in `path` that name files beside that document, as absolute paths.

    A service looks for them in its data roots instead. Returns the paths by field, such as `data.train.0`.
    """
    beside = path.resolve().parent
    return {
        field: str(beside / pattern)
        for field, pattern in _list_patterns(job)
        if not is_remote(pattern) and not Path(pattern).is_absolute() and not find_pattern_fault(str(beside / pattern))
    }


def _list_patterns(job: JobSpec) -> list[tuple[str, str]]:
    """List the data patterns of a job, each with its field."""
    named = (("train", job.data.train), ("eval", job.data.eval))
    return [
        (f"data.{name}.{number}", pattern) for name, patterns in named for number, pattern in enumerate(patterns or [])
    ]


def _find_in_present_directory(pattern: str, base: Path) -> tuple[str, str] | None:
    """Look in the present directory for the files that `pattern`, which was made absolute with `base`, does not name.

    Returns None if absent; otherwise the reason and what would be valid.
    """
    missing, present = Path(pattern), Path.cwd()
    if present == base or not missing.is_relative_to(base):
        return None
    found = str(present / missing.relative_to(base))
    if find_pattern_fault(found):
        return None
    message = f"no file: {missing}, but there is {found}: a relative path counts from the directory of the job document"
    return message, f'"{os.path.relpath(found, base)}", or an absolute path'


def require_warm_start_model(job: JobSpec, path: Path) -> None:
    """Check that the model from which the job in `path` starts, if any, exists and fits the job.

    Raises BadInputError if it does not.
    """
    warm_start = job.run.warm_start
    if warm_start is None:
        return
    if is_remote(warm_start.source):
        _check_remote_model(job, warm_start.source, path)
        return
    path_of_source = Path(warm_start.source)
    try:
        source = TrainedModel.find(path_of_source)
        record = source.read_record()
    except NoModelError as error:
        valid = "the directory of a succeeded run, or of its model; the id of a job works only with `dlrm submit`"
        fault = FieldError("run.warm_start.from", f"{path_of_source} {error}", valid)
        raise BadInputError(f"{path}: {fault}") from None
    checkpoint = source.checkpoint if warm_start.optimizer_state else None
    faults = find_warm_start_faults(job, record.model, record.data, checkpoint and checkpoint.read_manifest().identity)
    if faults:
        raise BadInputError(*(f"{path}: {fault}" for fault in faults))


def _check_remote_model(job: JobSpec, uri: str, path: Path) -> None:
    """Check that the model at `uri` exists and fits the job in `path`; the run itself checks its optimizer state.

    Raises BadInputError if it does not, and CommandError where the bucket is out of reach.
    """
    try:
        with local_record(uri) as directory:
            record = TrainedModel.find(directory).read_record()
    except BadInputError as error:
        raise BadInputError(*(f"{path}: run.warm_start.from: {line}" for line in error.lines)) from None
    without_state = job.run.warm_start.model_copy(update={"optimizer_state": False}) if job.run.warm_start else None
    run = job.run.model_copy(update={"warm_start": without_state})
    if faults := find_warm_start_faults(job.model_copy(update={"run": run}), record.model, record.data, None):
        raise BadInputError(*(f"{path}: {fault}" for fault in faults))


def find_pattern_fault(pattern: str) -> tuple[str, str] | None:
    """Check that `pattern` names files of this machine.

    Returns None if it does; otherwise the reason and what would be valid. A remote pattern is not checked.
    """
    if not pattern.strip():
        return "empty path", "a file, directory or pattern that exists"
    try:
        check_scheme(pattern)
        if is_remote(pattern):
            return None
        not_regular = [file for file in require_files(pattern) if not file.is_file()]
    except PatternError as error:
        return f"{error.message}: {hide_credentials(pattern)}", error.valid
    except OSError as error:
        return f"{error.strerror}: {pattern}", "a file, directory or pattern that can be read"
    return (f"not a regular file: {not_regular[0]}", "a regular file") if not_regular else None
