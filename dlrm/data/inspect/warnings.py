"""Warnings about likely faults of the data."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dlrm.data.inspect.categorical import CategoricalReport
from dlrm.data.inspect.dense import DenseReport
from dlrm.data.inspect.rules import MIN_ROWS_FOR_UNIQUENESS

LEAK_AUC = 0.95
"""AUC from which a single column leaks the label."""
SUSPICIOUS_AUC = 0.8
MIN_SUSPICIOUS_EXCESS = 0.15
"""Least difference of a suspicious column's AUC to the median of the other columns."""


@dataclass(frozen=True)
class DataWarning:
    """A likely fault of the data."""

    kind: str
    """Kind of fault: `leak`, `suspicious`, `constant`, `one_value_a_row`, `one_class`, `same_columns` or
    `too_few_rows`."""
    column: str
    """Name of the column; empty for the data as a whole."""
    message: str


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
    found += [warning for column in columns if (warning := _find_leak(column, columns))]
    found += [warning for column in columns if (warning := _find_constant(column))]
    found += [warning for column in columns if (warning := _find_one_value_per_row(column, num_rows))]
    return found


def _find_leak(
    column: DenseReport | CategoricalReport, columns: Sequence[DenseReport | CategoricalReport]
) -> DataWarning | None:
    if column.auc is None:
        return None
    measured = f"alone it predicts the label with an AUC of {column.auc:.4f} (by {column.auc_by})"
    if column.auc >= LEAK_AUC:
        advice = "it leaks the label: leave it out unless its value is known before the label"
        return DataWarning("leak", column.name, f"{measured}: {advice}")
    others = [other.auc for other in columns if other is not column and other.auc is not None]
    middle = median(others) if others else 0.5
    if column.auc >= SUSPICIOUS_AUC and column.auc >= middle + MIN_SUSPICIOUS_EXCESS:
        return DataWarning(
            "suspicious",
            column.name,
            f"{measured}, the other columns with {middle:.4f}: is its value known before the label?",
        )
    return None


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
