"""Check of the files of a job before anything is written: their columns, and the values of the label."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlrm.config import DataConfig, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.sample import spread_evenly
from dlrm.data.raw.arrow import check_arrow_columns
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import name_other_kinds
from dlrm.data.raw.files import find_splits
from dlrm.data.raw.open import cut_blocks
from dlrm.data.raw.parquet import check_parquet_columns
from dlrm.data.raw.positive_labels import make_positive_error
from dlrm.data.raw.text import read_lines

_MAX_FILES = 64
"""Largest number of files of each split whose columns are checked."""
_MAX_LABEL_BYTES = 64 << 20
"""Bytes of the files after which the search for both values of the label is given up."""
_UNESCAPED = re.compile(r"[\w .-]*", re.ASCII)
"""Names that every program writes as they are."""


def check_files(config: DataConfig) -> None:
    """Check that the files of a job exist, differ between the splits, and have its columns and both labels.

    It reads as little as possible: a preparation, which reads all rows, may find more. `config.format` must be a raw
    format. Raises DataError.
    """
    train, evaluation = find_splits(config, None, Path())
    if config.format == "criteo_tsv":
        return
    for files in (train, evaluation):
        for number in spread_evenly(len(files), _MAX_FILES):
            _check_columns(config, files[number])
    if config.format == "jsonl":
        _check_keys(config.raw_schema, [*train, *evaluation])
    if config.raw_schema.positive is not None:
        # Files of their own may spell the label otherwise.
        for files, kind in ((train, "training"), (evaluation, "evaluation")) if evaluation else ((train, ""),):
            _check_positive(config, config.raw_schema.positive, files, kind)


def _check_columns(config: DataConfig, file: DataFile) -> None:
    """Raise DataError where a file lacks a column of the job."""
    if config.format == "parquet":
        with name_other_kinds([file]):
            check_parquet_columns(file, config.raw_schema)
    elif config.format == "arrow":
        check_arrow_columns(file, config.raw_schema)
    else:
        # The header is checked before the first block is cut.
        next(cut_blocks(config, [file]), None)


def _check_keys(schema: SchemaConfig, files: Sequence[DataFile]) -> None:
    """Raise DataError where the first lines of all files lack a key of the schema, and their paths state no such value:
    a misspelt one is always missing."""
    wanted = set(schema.names).difference(*(file.path_values for file in files))
    for number in spread_evenly(len(files), _MAX_FILES):
        data = next(read_lines(files[number])).data
        wanted = {name for name in wanted if _lacks_key(data, name)}
        if not wanted:
            return
    name = next(name for name in schema.names if name in wanted)
    raise DataError("no line has this key", files[0].name, field=name, valid="a key of the JSON objects")


def _lacks_key(data: bytes, name: str) -> bool:
    """Whether no line of JSON has a key, which may be one with dots or the last of nested ones.

    Programs may write other names with escapes: of these it is not known.
    """
    keys = (name, name.rpartition(".")[2])
    return _UNESCAPED.fullmatch(name) is not None and all(f'"{key}"'.encode() not in data for key in keys)


def _check_positive(config: DataConfig, positive: str, files: Sequence[DataFile], kind: str) -> None:
    """Raise DataError where no row, or every row, has the positive label, as far as that is soon known.

    kind: kind of the rows of these files, such as "evaluation"; empty for all.
    """
    num_bytes = num_rows = num_positives = 0
    label_values: set[str] = set()
    for block in cut_blocks(config, files):
        table = block.parse(True).table
        num_bytes += block.num_bytes
        num_rows += table.num_rows
        num_positives += int(np.count_nonzero(table.labels == 1))
        label_values |= set(table.label_values)
        if 0 < num_positives < num_rows or num_bytes > _MAX_LABEL_BYTES:
            return
    if num_rows:
        raise make_positive_error(positive, config.raw_schema.label, num_positives, label_values, kind)
