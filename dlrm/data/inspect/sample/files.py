"""Sampling of the rows of files of any format with a schema."""

from collections.abc import Callable, Sequence

from dlrm.data.inspect.sample.csv import sample_csv
from dlrm.data.inspect.sample.file_sample import FileSample
from dlrm.data.inspect.sample.jsonl import sample_jsonl
from dlrm.data.inspect.sample.parquet import sample_arrow, sample_parquet
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import name_other_kinds

_SAMPLERS: dict[str, Callable[[Sequence[DataFile], Sequence[DataFile]], FileSample]] = {
    "csv": sample_csv,
    "jsonl": sample_jsonl,
    "arrow": sample_arrow,
    "parquet": sample_parquet,
}


def sample_files(kind: str, files: Sequence[DataFile], others: Sequence[DataFile] = ()) -> FileSample:
    """Sample rows of `files`. kind: value of `data.format`. others: see `sample_csv`. Raises DataError."""
    with name_other_kinds([*files, *others] if kind == "parquet" else ()):
        return _SAMPLERS[kind](files, others)
