"""Report on the contents and the likely faults of data."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dlrm.data.inspect.report.column_reports import (
    CategoricalReport,
    DenseReport,
    FormatValue,
    Tables,
    report_categorical,
    report_dense,
)
from dlrm.data.inspect.report.gather import InspectedRows
from dlrm.data.inspect.report.leaks import Halves, SameColumns
from dlrm.data.inspect.report.warnings import DataWarning, find_warnings

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
