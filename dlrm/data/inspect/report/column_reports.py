"""Reports on one dense and on one categorical column."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.data.inspect.report.gather import CategoricalColumn, DenseColumn
from dlrm.data.inspect.report.leaks import (
    BetterUse,
    Halves,
    describe_giveaway,
    find_better_use,
    measure_categorical,
    measure_dense,
)

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
NUM_BARS = 40


@dataclass(frozen=True)
class DenseReport:
    name: str
    missing_share: float
    num_distinct: int
    min: float | None
    max: float | None
    mean: float | None
    quantiles: dict[float, float]
    """Quantiles of the present values, by level in (0, 1); empty if no value is present."""
    edges: list[float]
    """[bars + 1], edges of the histogram, which covers the values between the first and the last of QUANTILES."""
    bars: list[int]
    """Number of values between each two neighbouring edges."""
    is_whole: bool
    """Whether all values are whole numbers."""
    auc: float | None = None
    """AUC of the label predicted from this column alone, on rows it was not fitted on; None with too few rows."""
    auc_by: str = ""
    giveaway: str = ""
    """Value that gives the label away, worded to follow the name; empty if there is none."""
    better_use: BetterUse | None = None
    """Use as ids or ranges that predicts far better; None if absent, or where the column has such a use."""


def report_dense(column: DenseColumn, halves: Halves, *, is_only_dense: bool) -> DenseReport:
    """Report on a dense column. is_only_dense: look for a better use too, since the column has no other one."""
    is_present = ~np.isnan(column.values)
    present = column.values[is_present]
    missing_share = 1.0 - len(present) / max(len(column.values), 1)
    leak = measure_dense(column, halves) if halves.can_measure else None
    auc, auc_by = (None, "") if leak is None else (leak.auc, leak.by)
    if not len(present):
        return DenseReport(
            column.name, missing_share, 0, None, None, None, {}, [], [], is_whole=False, auc=auc, auc_by=auc_by
        )
    quantiles = np.quantile(present, QUANTILES)
    low, high = quantiles[0], quantiles[-1]
    bars, edges = np.histogram(present, NUM_BARS, (low, high if high > low else low + 1.0))
    return DenseReport(
        name=column.name,
        missing_share=missing_share,
        num_distinct=len(column.distinct_and_codes[0]),
        min=float(present.min()),
        max=float(present.max()),
        mean=float(present.mean()),
        quantiles=dict(zip(QUANTILES, quantiles.tolist(), strict=True)),
        edges=edges.tolist(),
        bars=bars.tolist(),
        is_whole=bool(np.all(present == np.round(present))),
        auc=auc,
        auc_by=auc_by,
        giveaway=describe_giveaway(column, halves.labels),
        better_use=find_better_use(column, halves) if is_only_dense and halves.can_measure else None,
    )


MIN_COUNTS = (1, 2, 5, 10)
"""Values of min_count for which the table size is reported, in addition to the job's."""
TOP_COUNTS = (10, 100, 1000)
MAX_POINTS = 120
"""Largest number of points of a frequency curve."""
NUM_SHOWN_VALUES = 5
LARGE_TABLE_BYTES = 2**30
COVERED_SHARE = 0.99
"""Share of all occurrences: a suggested hashed table has room for the most frequent values that cover it."""
BYTES_PER_NUMBER = 4
SHARED_ROWS = 2
"""Shared rows of a counted table: one for rare values, and one for missing ones."""


FormatValue = Callable[[Any], str]
"""Function that formats a categorical value for display."""


@dataclass(frozen=True)
class TableSize:
    """Size of a counted table for the inspected rows alone, or of an existing table whose rows the data refers to."""

    min_count: int | None
    """Least count of a value with a row of its own; None for an existing table."""
    num_rows: int
    num_bytes: int
    """Bytes of the weights, and of one number per row for row-wise Adagrad."""


@dataclass(frozen=True)
class CategoricalReport:
    name: str
    is_multi_hot: bool
    missing_share: float
    """Share of the rows without a present value."""
    num_distinct: int
    num_seen_once: int
    covered_by: dict[int, float]
    """Share of all occurrences that the k most frequent values have, by k."""
    top_values: list[tuple[str, int]]
    curve: list[tuple[int, int]]
    """Pairs of a rank, from 1, and the number of occurrences of the value of that rank."""
    tables: list[TableSize]
    """Sizes by ascending min_count, the job's included; or the size of the existing table alone; empty for sequences,
    which have none."""
    target: str | None
    """Column whose table the values are read from, if they are sequences."""
    hash_size: int | None
    """Suggested rows of a hashed table; None if hashing is not suggested."""
    why_hash: str
    auc: float | None = None
    """AUC of the label predicted from this column alone, on rows it was not fitted on; None with too few rows."""
    auc_by: str = ""
    giveaway: str = ""
    """Value that gives the label away, worded to follow the name; empty if there is none."""


@dataclass(frozen=True)
class Tables:
    """Settings of the embedding tables to make of the columns."""

    embedding_dim: int
    min_count: int
    """Least count of a value with a row of its own."""
    scale: float
    """Ratio of the number of all rows to the number of inspected rows."""

    def make_size(self, num_rows: int, min_count: int | None) -> TableSize:
        return TableSize(min_count, num_rows, num_rows * BYTES_PER_NUMBER * (self.embedding_dim + 1))

    def make_counted_size(self, counts: NDArray[np.int64], min_count: int) -> TableSize:
        return self.make_size(int(np.count_nonzero(counts >= min_count)) + SHARED_ROWS, min_count)

    def suggest_hashing(self, descending: NDArray[np.int64]) -> tuple[int | None, str]:
        """Suggest the size of a hashed table, with the reason; None if a counted table is small enough.

        descending: [num_distinct], occurrences of the values in descending order.
        """
        # Rows that were not inspected are assumed to add new values in proportion to those seen once.
        num_unseen = int((self.scale - 1.0) * np.count_nonzero(descending == 1))
        table = self.make_size(self.make_counted_size(descending, self.min_count).num_rows + num_unseen, self.min_count)
        if table.num_bytes <= LARGE_TABLE_BYTES:
            return None, ""
        covered = np.cumsum(descending) / descending.sum()
        num_frequent = int(np.searchsorted(covered, COVERED_SHARE)) + 1
        largest = LARGE_TABLE_BYTES // (BYTES_PER_NUMBER * (self.embedding_dim + 1))
        hash_size = 2 ** int(np.log2(min(2 * num_frequent, largest)))
        return hash_size, f"up to {table.num_rows:,} rows, {table.num_bytes / 2**30:.1f} GiB"


def report_categorical(
    column: CategoricalColumn, halves: Halves, tables: Tables, format_value: FormatValue
) -> CategoricalReport:
    """Report on a categorical column."""
    present = column.codes[column.codes >= 0]
    counts = np.bincount(present, minlength=len(column.distinct))
    order = np.argsort(-counts, kind="stable")
    descending = counts[order]
    min_counts = sorted({*MIN_COUNTS, tables.min_count})
    hash_size, why_hash = None, ""
    if column.target is not None:
        sizes = []
    elif column.fixed_rows is not None:
        sizes = [tables.make_size(column.fixed_rows, min_count) for min_count in min_counts]
    elif column.table_rows is None:
        sizes = [tables.make_counted_size(counts, min_count) for min_count in min_counts]
        hash_size, why_hash = tables.suggest_hashing(descending)
    else:
        sizes = [tables.make_size(column.table_rows, None)]
    leak = measure_categorical(column, halves) if halves.can_measure else None
    return CategoricalReport(
        name=column.name,
        is_multi_hot=column.lengths is not None,
        missing_share=_compute_missing_share(column),
        num_distinct=len(column.distinct),
        num_seen_once=int(np.count_nonzero(counts == 1)),
        covered_by={top: float(descending[:top].sum() / max(len(present), 1)) for top in TOP_COUNTS},
        top_values=[
            (format_value(column.distinct[int(index)]), int(counts[index])) for index in order[:NUM_SHOWN_VALUES]
        ],
        curve=[(int(rank) + 1, int(descending[rank])) for rank in _choose_ranks(len(descending))],
        tables=sizes,
        target=column.target,
        hash_size=hash_size,
        why_hash=why_hash,
        auc=None if leak is None else leak.auc,
        auc_by="" if leak is None else leak.by,
        giveaway=describe_giveaway(column, halves.labels),
    )


def _compute_missing_share(column: CategoricalColumn) -> float:
    is_present = column.codes >= 0
    if column.lengths is not None:
        rows = np.repeat(np.arange(len(column.lengths)), column.lengths)
        is_present = np.bincount(rows[is_present], minlength=len(column.lengths)) > 0
    return 1.0 - float(is_present.mean()) if len(is_present) else 0.0


def _choose_ranks(num_ranks: int) -> NDArray[np.int64]:
    """Choose ranks, from 0, that are evenly spread on a logarithmic axis; at most MAX_POINTS."""
    if num_ranks == 0:
        return np.empty(0, dtype=np.int64)
    return np.unique(np.geomspace(1, num_ranks, MAX_POINTS).astype(np.int64)) - 1
