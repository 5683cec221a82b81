"""Check of the files of a job before anything is written: their columns, and the values of the label."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pyarrow import parquet

from dlrm.config import DataConfig
from dlrm.data.inspect.sample.file_sample import spread_evenly
from dlrm.data.raw.data_file import DataFile, name_read_errors
from dlrm.data.raw.file_kinds import name_other_kinds
from dlrm.data.raw.files import find_splits
from dlrm.data.raw.open import cut_blocks
from dlrm.data.raw.text.jsonl import check_keys
from dlrm.data.raw.typed.arrow import open_arrow
from dlrm.data.raw.typed.parquet import find_columns_to_read
from dlrm.data.raw.values.positive_labels import make_positive_error

_MAX_FILES = 64
"""Largest number of files of each split whose columns are checked."""
_MAX_LABEL_BYTES = 64 << 20
"""Bytes of the files after which the search for both values of the label is given up."""


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
        if config.format == "jsonl" and files:
            check_keys(config.raw_schema.names, files)
    if config.raw_schema.positive is not None:
        # Files of their own may spell the label otherwise.
        for files, kind in ((train, "training"), (evaluation, "evaluation")) if evaluation else ((train, ""),):
            _check_positive(config, config.raw_schema.positive, files, kind)


def _check_columns(config: DataConfig, file: DataFile) -> None:
    """Raise DataError if a file lacks a column of the job."""
    if config.format == "parquet":
        with name_other_kinds([file]), file.open() as raw, name_read_errors(file, "Parquet"):
            find_columns_to_read(file, parquet.read_schema(raw), config.raw_schema)
    elif config.format == "arrow":
        with open_arrow(file) as found:
            find_columns_to_read(file, found.schema, config.raw_schema)
    else:
        # The header is checked before the first block is cut.
        next(cut_blocks(config, [file]), None)


def _check_positive(config: DataConfig, positive: str, files: Sequence[DataFile], kind: str) -> None:
    """Raise DataError if no row, or every row, has the positive label, as far as that is soon known.

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
