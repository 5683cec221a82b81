"""What `dlrm prepare` and `dlrm data inspect` are given: one job document, a prepared directory, or data files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrm.config import DataConfig, ModelConfig
from dlrm.config.patterns import PACKED_META, is_remote, local_files
from service.cli.documents import data_from_job_file, fault_of, read_job, require_data_files
from service.cli.errors import BadInputError

DOCUMENTS = (".toml", ".json")
COMPRESSED = (".gz", ".zst")
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}


@dataclass(frozen=True)
class Source:
    """Data, and what is known of the model it is for."""

    data: DataConfig
    """Its paths are absolute."""
    embedding_dim: int


def read_source(sources: Sequence[str]) -> Source:
    """The data of one job document, with relative paths counted from the file; or of the files that are named.

    Raises BadInputError where they are not there, and where files need a schema.
    """
    if Path(sources[0]).suffix in DOCUMENTS:
        return _of_document(sources)
    files = absolute_files(sources)
    embedding_dim = ModelConfig().embedding_dim
    if len(files) == 1 and not is_remote(files[0]) and Path(files[0], PACKED_META).is_file():
        return Source(DataConfig(train=files, format="packed"), embedding_dim)
    kind = format_of(files)
    if kind is not None:
        named = " ".join(sources)
        raise BadInputError(
            f"{sources[0]}: {kind} files need a schema: "
            f"`dlrm prepare --infer {named} --output job.toml` writes one, then name job.toml"
        )
    return Source(DataConfig(train=files), embedding_dim)


def absolute_files(sources: Sequence[str]) -> list[str]:
    """The files, directories or patterns as absolute ones. Raises BadInputError where one names no file."""
    documents = [source for source in sources if Path(source).suffix in DOCUMENTS]
    if documents:
        raise BadInputError(f"{documents[0]}: name one job document alone, or data files alone")
    faults = [fault for source in sources if (fault := fault_of(source))]
    if faults:
        raise BadInputError(*(f"{fault} (valid: {valid})" for fault, valid in faults))
    return [source if is_remote(source) else str(Path(source).absolute()) for source in sources]


def format_of(patterns: Sequence[str]) -> str | None:
    """`parquet` or `csv`, by the first file's name; None for every other."""
    name = patterns[0] if is_remote(patterns[0]) else str(local_files(patterns[0])[0])
    path = Path(name)
    suffix = path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix
    return FORMATS.get(suffix.lower())


def _of_document(sources: Sequence[str]) -> Source:
    path = Path(sources[0])
    if len(sources) > 1:
        raise BadInputError(f"{path}: name one job document alone, or data files alone")
    _, job = read_job(path)
    job = data_from_job_file(job, path)
    require_data_files(job, path)
    return Source(job.data, job.model.embedding_dim)
