"""Check of the columns of an inferred schema: which give the label away, and which are called as labels are."""

import json
from dataclasses import replace

import polars as pl

from dlrm.data.inspect.choice import LEAK_AUC, Choice, leave_out
from dlrm.data.inspect.label_names import is_called_event, is_called_outcome
from dlrm.data.inspect.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.pure_value import find_pure_value, find_pure_value_of_lists

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
        fields = ", ".join(f"{key} = {json.dumps(value)}" for key, value in {"name": choice.name, **settings}.items())
        role = "categorical" if choice.categorical else "dense"
        warning = f"left out, since it {giveaway}; to use it, add {{ {fields} }} to data.schema.{role}"
        left_out = leave_out(choice.name, "its name says that it follows the label", auc=choice.auc)
        return replace(left_out, warning=warning)
    if is_outcome and is_two_valued and not giveaway:
        return replace(choice, warning=f"called as a label is: {QUESTION}")
    return choice
