"""Search for columns of the files that a schema leaves out although they predict better than all that it uses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from dlrm.config import DataConfig
from dlrm.data.inspect.choice import LEAK_AUC, Choice
from dlrm.data.inspect.giveaways import doubt_outcome, find_giveaway
from dlrm.data.inspect.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.rules import choose
from dlrm.data.inspect.sample import FileSample
from dlrm.data.inspect.sample_files import sample_files
from dlrm.data.raw.files import find_files
from dlrm.data.raw.positive_labels import match_positive

MAX_COLUMNS = 300
"""Largest number of columns that are judged."""


@dataclass(frozen=True)
class UnusedColumn:
    """A column that the schema does not use."""

    name: str
    auc: float


def find_unused_columns(config: DataConfig, best_used_auc: float) -> Sequence[UnusedColumn]:
    """Find the columns that alone predict the label better than each column in use, but do not give it away by their
    AUC, or by their names and their values.

    best_used_auc: AUC of the best column in use. Raises DataError if a file cannot be read.
    """
    schema = config.table_schema
    if schema is None:
        return []
    files = find_files(config.train, "data.train", None, Path())
    sample = sample_files(config.format, files)
    if config.format == "csv":
        sample = _rename(sample, schema.columns)
    names = [name for name in sample.rows.columns if name not in config.raw_schema.names][:MAX_COLUMNS]
    if not names or schema.label not in sample.rows.columns:
        return []
    rows = sample.rows.filter(sample.rows[schema.label].is_not_null())
    labels, is_missing = match_positive(rows[schema.label].alias("").to_arrow(), schema.positive or "1")
    rows, labels = rows.filter(~pl.Series(is_missing)), labels[~is_missing]
    labelled = LabelledRows(labels == 1, max(sample.num_rows, rows.height))
    choices = [choose(rows[name], sample.types[name], labelled, sample.delimiter) for name in names]
    return [
        UnusedColumn(choice.name, choice.auc)
        for choice in choices
        if choice.auc is not None and best_used_auc < choice.auc < LEAK_AUC
        if not _leave_out_outcome(choice, rows[choice.name], labelled).is_left_out
    ]


def _leave_out_outcome(choice: Choice, values: pl.Series, labelled: LabelledRows) -> Choice:
    if choice.is_left_out or isinstance(values.dtype, pl.List):
        return choice
    column = EncodedColumn.encode(values)
    return doubt_outcome(choice, find_giveaway(choice, values, column, labelled), column)


def _rename(sample: FileSample, columns: list[str] | None) -> FileSample:
    """Give the columns of files without a header the names that the schema lists."""
    if columns is None or len(columns) != len(sample.rows.columns):
        return sample
    types = dict(zip(columns, sample.types.values(), strict=True))
    names = dict(zip(sample.rows.columns, columns, strict=True))
    return replace(sample, rows=sample.rows.rename(names), types=types)
