"""Search for columns of the files that a schema leaves out although they predict better than all that it uses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlrm.config import DataConfig
from dlrm.data.inspect.choice import LEAK_AUC
from dlrm.data.inspect.labelled import LabelledRows
from dlrm.data.inspect.rules import choose
from dlrm.data.inspect.sample import FileSample
from dlrm.data.inspect.sample_csv import sample_csv
from dlrm.data.inspect.sample_parquet import sample_parquet
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
    """Find the columns that alone predict the label better than each column in use, but do not give it away.

    best_used_auc: AUC of the best column in use. Raises DataError where a file cannot be read.
    """
    schema = config.table_schema
    if schema is None:
        return []
    files = find_files(config.train, "data.train", None, Path())
    sample = sample_parquet(files) if config.format == "parquet" else _rename(sample_csv(files), schema.columns)
    names = [name for name in sample.rows.columns if name not in config.raw_schema.names][:MAX_COLUMNS]
    if not names or schema.label not in sample.rows.columns:
        return []
    rows = sample.rows.filter(sample.rows[schema.label].is_not_null())
    labels, _ = match_positive(rows[schema.label].alias("").to_arrow(), schema.positive or "1")
    labelled = LabelledRows(labels == 1, max(sample.num_rows, rows.height))
    choices = [choose(rows[name], sample.types[name], labelled, sample.delimiter) for name in names]
    used = [(choice.name, choice.auc) for choice in choices if not choice.is_left_out and choice.auc is not None]
    return [UnusedColumn(name, auc) for name, auc in used if best_used_auc < auc < LEAK_AUC]


def _rename(sample: FileSample, columns: list[str] | None) -> FileSample:
    """Give the columns of files without a header the names that the schema lists."""
    if columns is None or len(columns) != len(sample.rows.columns):
        return sample
    types = dict(zip(columns, sample.types.values(), strict=True))
    names = dict(zip(sample.rows.columns, columns, strict=True))
    return replace(sample, rows=sample.rows.rename(names), types=types)
