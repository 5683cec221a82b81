"""Search for columns that give the label away: by a value that occurs with one label alone, or by their names.

How likely such a value is by chance depends on how much the rates of the other values differ. A site where nobody
clicked an ad is nothing strange among sites that differ. A kind of row that always has label 1 is, if all others are
alike. So rates are taken to be beta-distributed, with the spread of the values that occur with both labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lgamma, log

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.data.inspect.judge.choice import LEAK_AUC, Choice, leave_out
from dlrm.data.inspect.judge.label_words import is_called_event, is_called_outcome
from dlrm.data.inspect.judge.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.sample.file_sample import format_entry

MIN_ROWS = 30
"""Least number of rows with a value that may give the label away."""
_MAX_CHANCE = 1e-6
"""Largest probability that a column has such a value by chance."""
_MIN_CORRELATION = 1e-9
"""Least correlation of labels that is not taken for 0: below, rounding would be larger."""
_MAX_SHOWN = 40
"""Largest number of characters of a value in a message."""


@dataclass(frozen=True)
class PureValue:
    """A value, or all values but one, with which one label alone occurs."""

    code: int
    """Index of the value among the distinct ones; -1 if it is a missing value."""
    num_rows: int
    label: int
    """0 or 1."""
    is_rest: bool = False
    """Whether it is all values but that one."""

    def describe(self, distinct: Sequence[object] | pl.Series) -> str:
        """Describe it in words that go on from the name of the column. distinct: the values in the order of codes."""
        text = "a missing value" if self.code < 0 else repr(distinct[self.code])
        what = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        if self.is_rest:
            what = "a value" if self.code < 0 else f"another value than {what}"
        return f"has {what} in {self.num_rows:,} rows, all with label {self.label}"


def find_pure_value(codes: NDArray[np.int64], num_values: int, labels: NDArray[np.bool_]) -> PureValue | None:
    """Find the most frequent value that occurs with one label alone, with label 1 rather than 0; else all values but
    the most frequent one, if they do so together, as the times of purchases may. None if that may be chance.

    codes: [n], from 0 to num_values - 1, or -1 = missing. labels: [n].
    """
    # The missing value comes first, then the others.
    places = codes + 1
    rows = np.bincount(places, minlength=num_values + 1).astype(np.float64)
    positives = np.bincount(places, labels.astype(np.float64), num_values + 1).astype(np.float64)
    num_rows = float(rows.sum())
    if not 0.0 < positives.sum() < num_rows:
        return None
    is_frequent = rows >= MIN_ROWS
    is_mixed = is_frequent & (positives > 0) & (positives < rows)
    correlation = _estimate_correlation(rows[is_mixed], positives[is_mixed])
    limit = log(_MAX_CHANCE / (np.count_nonzero(is_frequent) + 1))
    top = int(np.argmax(rows))
    num_others = num_rows - float(rows[top])
    for label, of_label in ((1, positives), (0, rows - positives)):
        num_of_label = float(of_label.sum())
        rate = num_of_label / num_rows
        is_pure = is_frequent & (of_label == rows)
        place = int(np.argmax(np.where(is_pure, rows, 0.0)))
        if is_pure[place] and _log_chance(rows[place], rate, correlation) < limit:
            return PureValue(place - 1, int(rows[place]), label)
        if num_of_label - of_label[top] == num_others >= MIN_ROWS and _log_chance(num_others, rate, 0.0) < limit:
            return PureValue(top - 1, int(num_others), label, is_rest=True)
    return None


def find_pure_value_of_lists(
    codes: NDArray[np.int64], lengths: NDArray[np.int32], num_values: int, labels: NDArray[np.bool_]
) -> PureValue | None:
    """Find the value as `find_pure_value` does; a row counts once, however often its list has the value.

    codes: [sum of lengths]. lengths, labels: [n].
    """
    # Without sorting: values that repeat within rows only make more of them seem pure.
    if find_pure_value(codes, num_values, np.repeat(labels, lengths)) is None:
        return None
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    rows, places = np.divmod(np.unique(row_of * (num_values + 1) + codes + 1), num_values + 1)
    return find_pure_value(places - 1, num_values, labels[rows])


def _estimate_correlation(rows: NDArray[np.float64], positives: NDArray[np.float64]) -> float:
    """Estimate the correlation of the labels of two rows with the same value by the method of moments; 0 if there is
    none. rows, positives: [k], number of rows and of positive rows with each value."""
    num_rows = float(rows.sum())
    if len(rows) < 2:
        return 0.0
    rate = float(positives.sum()) / num_rows
    chance = rate * (1.0 - rate)
    excess = float((rows * (positives / rows - rate) ** 2).sum()) - (len(rows) - 1) * chance
    spread = excess / (num_rows - float((rows**2).sum()) / num_rows)
    return min(max(spread / chance, 0.0), 0.999)


def _log_chance(num_rows: float, rate: float, correlation: float) -> float:
    """Compute the logarithm of the probability that `num_rows` rows of a value all have a label of rate `rate`, if the
    rates of values are beta-distributed and labels of rows with the same value have this correlation."""
    if correlation < _MIN_CORRELATION:
        return num_rows * log(rate)
    size = 1.0 / correlation - 1.0
    a = rate * size
    return lgamma(a + num_rows) - lgamma(a) - lgamma(size + num_rows) + lgamma(size)


QUESTION = "is it known before the label?"


def find_giveaway(choice: Choice, values: pl.Series, column: EncodedColumn | None, rows: LabelledRows) -> str:
    """Describe how the column of `values` [n] gives the label away, in words that go on from its name; empty if it does
    not, and for lists of numbers, which have no values in common. column: the encoded values; None if they are lists of
    a typed file."""
    if column is None and not choice.categorical:
        return ""
    if choice.auc is not None and choice.auc >= LEAK_AUC:
        return f"alone predicts the label with an AUC of {choice.auc:.4f}"
    if column is not None and not any("multi_hot" in settings for settings in choice.categorical):
        pure = find_pure_value(column.codes, column.num_distinct, rows.labels)
        return "" if pure is None else pure.describe(column.distinct)
    separator = next((settings["separator"] for settings in choice.categorical if "separator" in settings), None)
    lists = values.str.split(str(separator)) if values.dtype == pl.String else values
    # An empty or a missing list becomes one missing value.
    lengths = lists.list.len().fill_null(1).clip(1).cast(pl.Int32).to_numpy()
    flat = EncodedColumn.encode(lists.explode(empty_as_null=True, keep_nulls=True))
    pure = find_pure_value_of_lists(flat.codes, lengths, flat.num_distinct, rows.labels)
    return "" if pure is None else pure.describe(flat.distinct)


def doubt_outcome(choice: Choice, giveaway: str, column: EncodedColumn | None) -> Choice:
    """Leave a column out if its name says that it follows the label and it gives the label away; warn of one that is
    only called as a label is. giveaway: how it gives the label away; column: as for `find_giveaway`."""
    is_two_valued = column is not None and column.num_distinct + (column.num_present < len(column.codes)) == 2
    is_outcome = is_called_event(choice.name) or (is_two_valued and is_called_outcome(choice.name))
    if giveaway and is_outcome:
        settings = (choice.categorical or [choice.dense or {}])[0]
        role = "categorical" if choice.categorical else "dense"
        warning = (
            f"left out, since it {giveaway}; to use it, add {format_entry(choice.name, settings)} to data.schema.{role}"
        )
        left_out = leave_out(choice.name, "its name says that it follows the label", auc=choice.auc)
        return replace(left_out, warning=warning)
    if is_outcome and is_two_valued and not giveaway:
        return replace(choice, warning=f"called as a label is: {QUESTION}")
    return choice
