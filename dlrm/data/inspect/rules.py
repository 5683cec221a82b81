"""Rules that choose the use of a column, by its type; numbers, texts and times have rules of their own."""

from typing import Any

import polars as pl

from dlrm.config.schema import MAX_NAME_LENGTH
from dlrm.data.inspect.choice import Choice, Settings, format_aucs, format_missing, leave_out
from dlrm.data.inspect.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.number_rules import choose_for_numbers
from dlrm.data.inspect.text_rules import choose_for_texts, measure_ids
from dlrm.data.inspect.time_rules import choose_for_times, find_times

_INDEX_NAMES = ("__index_level_", "Unnamed: ")
"""Beginnings of the names that pandas gives to the index, when it writes it as a column."""
_MAX_WRITTEN_OUT = 10**12
"""Least integer that is shown in short, as 9.22e+18."""


def choose(values: pl.Series, type_name: str, rows: LabelledRows, delimiter: str | None = None) -> Choice:
    """Choose the use of the column of `values` [n], one for each of `rows`.

    type_name: type in the files, or a reason such as `not in b.parquet` to leave the column out. delimiter: the one of
    text files, where lists are texts with separators; None for typed files.
    """
    name = values.name
    why = _find_fault(values, type_name)
    if why:
        return leave_out(name, why)
    if isinstance(values.dtype, pl.List):
        return _choose_for_lists(values.drop_nulls(), type_name, values.null_count() / len(values))
    column = EncodedColumn.encode(values)
    if column.num_distinct == 1:
        return _choose_for_constant(column, type_name, rows)
    times = find_times(column)
    if times is not None:
        return choose_for_times(column, times, type_name, rows)
    if values.dtype == pl.String:
        return choose_for_texts(column, rows, delimiter)
    if values.dtype == pl.Boolean:
        found = measure_ids(column, rows)
        why = f"{type_name}{format_missing(column.missing_share)}{format_aucs({'': found})}"
        return Choice(name, why, {"transform": "none"}, auc=None if found is None else found.auc)
    if not values.dtype.is_numeric():
        return leave_out(name, f"{type_name}: not a number, a text, a time or a list of ids")
    description, id_settings = _describe_numbers(column, type_name)
    return choose_for_numbers(column, description, rows, id_settings)


def find_name_fault(name: str) -> str:
    """Return why a schema cannot name a column; empty where it can."""
    if not name.strip():
        return "it has no name"
    return f"its name is longer than {MAX_NAME_LENGTH} characters" if len(name) > MAX_NAME_LENGTH else ""


def _find_fault(values: pl.Series, type_name: str) -> str:
    """Return why the column cannot be used whatever it holds; empty where it can."""
    name = values.name
    if fault := find_name_fault(name):
        return fault
    if name.startswith(_INDEX_NAMES):
        return "the index of a pandas table, by its name"
    if type_name.startswith("not "):
        return type_name
    if values.null_count() == len(values):
        return "all values are missing" if len(values) else "there are no rows"
    return ""


def _choose_for_lists(present: pl.Series, type_name: str, missing_share: float) -> Choice:
    inner = present.explode().drop_nulls()
    if inner.dtype == pl.String:
        kind = "string"
    elif inner.dtype.is_integer():
        kind = "integer"
    else:
        return leave_out(present.name, f"{type_name}: lists of values that are neither text nor integers")
    if not len(inner):
        return leave_out(present.name, f"{type_name}: all lists are empty")
    if inner.cast(pl.Int64, strict=False).has_nulls() and kind == "integer":
        return leave_out(present.name, f"{type_name}: holds integers beyond int64", "multi-hot, if written as text")
    why = f"lists of {present.list.len().mean():.1f} values on average, {inner.n_unique():,} distinct"
    settings: Settings = {"type": kind, "multi_hot": True}
    return Choice(present.name, why + format_missing(missing_share), None, [settings])


def _choose_for_constant(column: EncodedColumn, type_name: str, rows: LabelledRows) -> Choice:
    """Choose the use of a column with one value: none, unless whether it is missing predicts the label."""
    why = f"constant: {column.distinct[0]!r}{' or missing' if column.missing_share else ''}"
    found = measure_ids(column, rows) if column.missing_share else None
    if found is None or not found.gain.is_certain:
        return leave_out(column.name, why)
    why += f"{format_missing(column.missing_share)}{format_aucs({'by whether it is missing': found})}"
    if column.distinct.dtype == pl.String:
        return Choice(column.name, why, None, [{"type": "string"}], auc=found.auc)
    if column.distinct.dtype.is_numeric() or column.distinct.dtype == pl.Boolean:
        # With this transform a second feature says where the value is missing.
        return Choice(column.name, why, {"transform": "none"}, auc=found.auc)
    return leave_out(column.name, f"{type_name}, {why}", auc=found.auc)


def _describe_numbers(column: EncodedColumn, type_name: str) -> tuple[str, Settings | None]:
    """Describe a column of numbers: its type and its values, and its settings as ids, None where it cannot be ids."""
    distinct = column.distinct
    low, high = (_format_bound(bound) for bound in (distinct.min(), distinct.max()))
    fits_ids = distinct.dtype.is_integer() and not distinct.cast(pl.Int64, strict=False).has_nulls()
    description = f"{type_name}, {column.num_distinct:,} distinct values from {low} to {high}"
    return description, {"type": "integer"} if fits_ids else None


def _format_bound(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) and abs(number) < _MAX_WRITTEN_OUT else f"{number:.6g}"
