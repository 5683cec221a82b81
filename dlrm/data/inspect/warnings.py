"""Warnings about likely faults of the data."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from dlrm.data.inspect.better_use import NUM_RANGES
from dlrm.data.inspect.categorical import CategoricalReport
from dlrm.data.inspect.choice import LEAK_AUC
from dlrm.data.inspect.dense import DenseReport
from dlrm.data.inspect.giveaways import QUESTION
from dlrm.data.inspect.label_names import is_called_event, is_called_outcome
from dlrm.data.inspect.number_rules import MIN_ROWS_FOR_UNIQUENESS
from dlrm.data.inspect.unused import UnusedColumn

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
    found += [warning for column in columns if (warning := _find_leak(column))]
    found += [warning for column in columns if (warning := _find_outcome(column))]
    found += [warning for column in dense if (warning := _find_better_use(column))]
    found += [warning for column in columns if (warning := _find_constant(column))]
    found += [warning for column in columns if (warning := _find_one_value_per_row(column, num_rows))]
    return found


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
    setting = 'type = "integer"' if use.how == "ids" else f"bucketize = {NUM_RANGES}"
    figures = f"its numbers predict the label with an AUC of {use.number_auc:.4f}, as {use.how} with {use.auc:.4f}"
    line = f"{{ name = {json.dumps(column.name, ensure_ascii=False)}, {setting} }}"
    return DataWarning("better_use", column.name, f"{figures}: add {line} to data.schema.categorical")


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


def describe_unused(columns: Sequence[UnusedColumn], best_used_auc: float) -> list[DataWarning]:
    """Return a warning for each column that predicts better than all that the schema uses."""
    return [
        DataWarning(
            "unused",
            column.name,
            f"the schema leaves it out, but alone it predicts the label with an AUC of {column.auc:.4f}, the best one "
            f"in use with {best_used_auc:.4f}",
        )
        for column in columns
    ]
