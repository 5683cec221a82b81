"""Data files that a job or a command names: their paths, and checks before anything is started."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.local.documents import is_document, read_job
from cli.local.errors import BadInputError
from dlrm.config import DataConfig, FieldError, JobSpec, replace_warm_start_source, resolve
from dlrm.config.patterns import (
    PACKED_META,
    PatternError,
    check_scheme,
    hide_credentials,
    is_remote,
    list_local_files,
    require_files,
)

COMPRESSED = (".gz", ".zst")
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


@dataclass(frozen=True)
class Source:
    """Data to prepare or inspect, and the embedding dimension of the model for it."""

    data: DataConfig
    """Data section of a job document, with absolute paths."""
    embedding_dim: int | None
    """Embedding dimension that the document states; None if the number of rows decides it."""


def read_source(sources: Sequence[str], settings: Sequence[str] | None = None) -> Source:
    """Read the source from the arguments of a command: one job document, one prepared directory, or data files.

    Relative paths in a job document are relative to its directory. settings: arguments of `--set`. Raises BadInputError
    if files do not exist, and if they need a schema, which only a job document can give.
    """
    if is_document(sources[0]):
        return _read_source_document(sources, settings)
    if settings:
        raise BadInputError(f"--set: {sources[0]} is not a job document (valid: a .toml or .json file, or no --set)")
    files = resolve_files(sources)
    if len(files) == 1 and not is_remote(files[0]) and Path(files[0], PACKED_META).is_file():
        return Source(DataConfig(train=files, format="packed"), None)
    kind = guess_format(files)
    if kind is not None:
        files_as_given = " ".join(sources)
        raise BadInputError(
            f"{sources[0]}: {kind} files need a schema: "
            f"`dlrm prepare --infer {files_as_given} --output job.toml` writes one; then pass job.toml instead"
        )
    return Source(DataConfig(train=files), None)


def resolve_files(sources: Sequence[str]) -> list[str]:
    """Return the files, directories or patterns with absolute paths. Raises BadInputError if one names no file."""
    documents = [source for source in sources if is_document(source)]
    if documents:
        name = documents[0]
        rows = "; rows in a .json file are JSON Lines, one object per line" if name.lower().endswith(".json") else ""
        raise BadInputError(f"{name}: pass either one job document or data files{rows}")
    faults = [fault for source in sources if (fault := find_pattern_fault(source))]
    if faults:
        raise BadInputError(*(f"{fault} (valid: {valid})" for fault, valid in faults))
    return [source if is_remote(source) else str(Path(source).absolute()) for source in sources]


def guess_format(patterns: Sequence[str]) -> str | None:
    """Guess the format that needs a schema from the name of the first file; None for any other name."""
    name = patterns[0] if is_remote(patterns[0]) else str(list_local_files(patterns[0])[0])
    path = Path(name)
    suffix = path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix
    return FORMATS.get(suffix.lower())


def _read_source_document(sources: Sequence[str], settings: Sequence[str] | None) -> Source:
    path = Path(sources[0])
    if len(sources) > 1:
        raise BadInputError(f"{path}: pass either one job document or data files")
    _, job = read_job(path, settings)
    job = make_paths_absolute(job, path)
    require_data_files(job, path)
    model = job.model
    is_open = (model.embedding_dim, model.bottom_mlp) == ("auto", "auto")
    return Source(job.data, None if is_open else resolve(job).job.model.embedding_dim)


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

    Raises BadInputError, with one line for each pattern that names no file. If the same relative path names files
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
    """List the relative data paths of the job in `path` that name files beside the document, as absolute paths.

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
    """Look in the present directory for the files missing at `pattern`, which was made absolute with `base`.

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
