"""Sources of `dlrm prepare` and `dlrm data inspect`: one job document, a prepared directory, or data files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.local.document_file import is_document
from cli.local.documents import find_pattern_fault, make_paths_absolute, read_job, require_data_files
from cli.local.errors import BadInputError
from dlrm.config import DataConfig, resolve
from dlrm.config.patterns import PACKED_META, is_remote, list_local_files

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
    where files do not exist, and if they need a schema, which only a job document can give.
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
