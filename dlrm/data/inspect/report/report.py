"""Report on the contents and the likely faults of data, and on columns that a schema leaves out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import DataConfig
from dlrm.data.inspect.judge.choice import LEAK_AUC, Choice, Settings
from dlrm.data.inspect.judge.giveaways import QUESTION, doubt_outcome, find_giveaway
from dlrm.data.inspect.judge.label_words import is_called_event, is_called_outcome
from dlrm.data.inspect.judge.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.judge.number_rules import MIN_ROWS_FOR_UNIQUENESS
from dlrm.data.inspect.judge.rules import choose
from dlrm.data.inspect.report.column_reports import (
    CategoricalReport,
    DenseReport,
    FormatValue,
    Tables,
    report_categorical,
    report_dense,
)
from dlrm.data.inspect.report.gather import InspectedRows
from dlrm.data.inspect.report.leaks import NUM_FEW_RANGES, Halves, SameColumns
from dlrm.data.inspect.sample.file_sample import FileSample, format_entry
from dlrm.data.inspect.sample.files import sample_files
from dlrm.data.raw.files import find_files
from dlrm.data.raw.values.positive_labels import match_positive

MAX_COLUMNS = 300
"""Largest number of columns that are judged."""
NUM_CLASSES = 2
CERTAIN_LEAK_AUC = 0.999
"""AUC from which a single column is the label by another name."""


@dataclass(frozen=True)
class DataWarning:
    """A likely fault of the data."""

    kind: str
    """Kind of fault: `leak`, `outcome`, `better_use`, `unused`, `constant`, `one_value_a_row`, `one_class`,
    `same_columns` or `too_few_rows`."""
    column: str
    """Name of the column; empty for the data as a whole."""
    message: str


def find_unused_columns(config: DataConfig, best_used_auc: float) -> list[DataWarning]:
    """Warn of the columns that alone predict the label better than each column in use, but do not give it away by their
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
    fault = "the schema leaves it out, but alone it predicts the label with an AUC of"
    return [
        DataWarning("unused", choice.name, f"{fault} {choice.auc:.4f}, the best one in use with {best_used_auc:.4f}")
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


def find_warnings(
    dense: Sequence[DenseReport],
    categorical: Sequence[CategoricalReport],
    num_rows: int,
    label_rate: float,
    *,
    can_measure: bool,
) -> list[DataWarning]:
    """List the likely faults of the data.

    label_rate: share of label 1. can_measure: whether there are enough rows of both classes to measure how well a
    column predicts the label.
    """
    found: list[DataWarning] = []
    if label_rate in (0.0, 1.0):
        found.append(DataWarning("one_class", "", f"every label is {label_rate:.0f}: there is nothing to learn"))
    elif not can_measure:
        found.append(
            DataWarning("too_few_rows", "", "too few rows of one class to check whether a column leaks the label")
        )
    columns = [*dense, *categorical]
    of_columns = [*map(_find_leak, columns), *map(_find_outcome, columns), *map(_find_better_use, dense)]
    of_columns += [*map(_find_constant, columns), *(_find_one_value_per_row(column, num_rows) for column in columns)]
    return found + [warning for warning in of_columns if warning is not None]


def _find_leak(column: DenseReport | CategoricalReport) -> DataWarning | None:
    advice = "it gives the label away if it is only known after it: then leave it out"
    if column.auc is None or column.auc < LEAK_AUC:
        return DataWarning("leak", column.name, f"{column.giveaway}: {advice}") if column.giveaway else None
    measured = f"alone it predicts the label with an AUC of {column.auc:.4f} (by {column.auc_by})"
    if column.auc >= CERTAIN_LEAK_AUC:
        advice = "it is all but the label itself: leave it out unless its value is known before the label"
    return DataWarning("leak", column.name, f"{measured}: {advice}")


def _find_outcome(column: DenseReport | CategoricalReport) -> DataWarning | None:
    is_two_valued = column.num_distinct + (column.missing_share > 0) == NUM_CLASSES
    if not (is_two_valued and (is_called_outcome(column.name) or is_called_event(column.name))):
        return None
    message = f"called as a label is: {QUESTION} Otherwise leave it out"
    return DataWarning("outcome", column.name, message)


def _find_better_use(column: DenseReport) -> DataWarning | None:
    if column.better_use is None:
        return None
    use = column.better_use
    settings: Settings = {"type": "integer"} if use.how == "ids" else {"bucketize": NUM_FEW_RANGES}
    figures = f"its numbers predict the label with an AUC of {use.number_auc:.4f}, as {use.how} with {use.auc:.4f}"
    return DataWarning(
        "better_use", column.name, f"{figures}: add {format_entry(column.name, settings)} to data.schema.categorical"
    )


def _find_constant(column: DenseReport | CategoricalReport) -> DataWarning | None:
    if column.num_distinct == 0:
        return DataWarning("constant", column.name, "all values are missing: leave it out")
    if column.num_distinct == 1 and column.missing_share == 0:
        return DataWarning("constant", column.name, "all rows have the same value: leave it out")
    return None


def _find_one_value_per_row(column: DenseReport | CategoricalReport, num_rows: int) -> DataWarning | None:
    if column.num_distinct < max(num_rows * (1.0 - column.missing_share), MIN_ROWS_FOR_UNIQUENESS):
        return None
    if isinstance(column, DenseReport) and not column.is_whole:
        return None
    return DataWarning(
        "one_value_a_row", column.name, "a different value in every row predicts nothing about other rows"
    )


OnColumn = Callable[[str], None]
"""Callback that receives the name of a column before it is inspected."""
NUM_PARTS = 10
"""Number of consecutive parts of the rows for which the label rate is reported."""


@dataclass(frozen=True)
class Part:
    """A tenth of all rows, in the order of the files."""

    num_rows: int
    """Number of inspected rows in the part."""
    label_rate: float | None
    """Share of label 1 among the inspected rows of the part; None if it has none."""


@dataclass(frozen=True)
class Report:
    """The complete report on the data."""

    num_rows: int
    """Number of all rows, bad ones included."""
    num_rows_looked_at: int
    num_bad_rows: int
    """Number of bad rows among the rows that were read."""
    faults: list[str]
    """Error messages of the first bad rows."""
    label_rate: float
    parts: list[Part]
    embedding_dim: int
    """Embedding dimension D used for the table sizes."""
    min_count: int
    """Least count of a value with a row of its own, used for suggestions of tables."""
    dense: list[DenseReport]
    categorical: list[CategoricalReport]
    warnings: list[DataWarning] = field(default_factory=list[DataWarning])


def make_report(
    rows: InspectedRows,
    embedding_dim: int,
    min_count: int,
    *,
    format_value: FormatValue = str,
    on_column: OnColumn = lambda _: None,
) -> Report:
    """Inspect every column of the rows.

    embedding_dim, min_count: settings of the job, or its defaults. format_value: formats categorical values.
    """
    labels = rows.labels
    halves = Halves(labels, rows.is_fitted_on)
    same = SameColumns()
    tables = Tables(embedding_dim, min_count, rows.num_rows / len(labels))
    dense: list[DenseReport] = []
    categorical: list[CategoricalReport] = []
    for index, name in enumerate(rows.names.dense):
        on_column(name)
        column = rows.dense(index)
        same.add_dense(column)
        dense.append(report_dense(column, halves, is_only_dense=name in rows.names.only_dense))
    for index, name in enumerate(rows.names.categorical):
        on_column(name)
        column = rows.categorical(index)
        same.add_categorical(column)
        categorical.append(report_categorical(column, halves, tables, format_value))
    report = Report(
        num_rows=rows.num_rows,
        num_rows_looked_at=len(labels),
        num_bad_rows=rows.num_bad_rows,
        faults=[str(fault) for fault in rows.faults],
        label_rate=float(labels.mean()),
        parts=_measure_parts(labels, rows.row_numbers, rows.num_rows),
        embedding_dim=embedding_dim,
        min_count=min_count,
        dense=dense,
        categorical=categorical,
    )
    found = find_warnings(dense, categorical, len(labels), report.label_rate, can_measure=halves.can_measure)
    return replace(report, warnings=found + [DataWarning("same_columns", pair[0], text) for pair, text in same.find()])


def _measure_parts(labels: NDArray[np.float32], row_numbers: NDArray[np.int64], num_rows: int) -> list[Part]:
    part_of = row_numbers * NUM_PARTS // num_rows
    sizes = np.bincount(part_of, minlength=NUM_PARTS)
    positives = np.bincount(part_of, labels, NUM_PARTS)
    return [Part(int(size), float(ones / size) if size else None) for size, ones in zip(sizes, positives, strict=True)]
