"""Rules that choose the use of a column, by its type; numbers, texts and times have rules of their own."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from dlrm.config import format_count
from dlrm.config.schema import MAX_NAME_LENGTH
from dlrm.data.inspect.choice import Choice, Settings, format_aucs, format_missing, leave_out
from dlrm.data.inspect.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.number_rules import choose_for_numbers
from dlrm.data.inspect.text_rules import choose_for_texts, measure_ids
from dlrm.data.inspect.time_rules import choose_for_times
from dlrm.data.inspect.times import Times, find_times
from dlrm.data.raw.convert import find_extremes

_INDEX_NAMES = ("__index_level_", "Unnamed: ")
"""Beginnings of the names that pandas gives to the index, when it writes it as a column."""
_MAX_LIST_LENGTH = 1024
"""Largest number of elements of a list that become dense columns."""
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
    if not values.dtype.is_numeric():
        return _choose_by_values(values, type_name, rows, delimiter)
    is_extreme = find_extremes(values.cast(pl.Float64).fill_null(np.nan).to_numpy())
    if not is_extreme.any():
        return _choose_by_values(values, type_name, rows, delimiter)
    what = "infinite, beyond float32 or a limit of 64-bit integers, taken as missing"
    if is_extreme.sum() == len(values) - values.null_count():
        return leave_out(name, f"{type_name}: all values are {what}")
    choice = _choose_by_values(values.set(pl.Series(is_extreme), None), type_name, rows, delimiter)
    if choice.is_left_out or (choice.dense is None and choice.categorical == [{"type": "integer"}]):
        return choice
    note = f"{is_extreme.sum():,} of {len(values):,} values of the sample are {what}"
    return replace(choice, why=f"{choice.why}; {note}", warning="; ".join(filter(None, [note, choice.warning])))


def _choose_by_values(values: pl.Series, type_name: str, rows: LabelledRows, delimiter: str | None) -> Choice:
    """Choose the use of a column with some present value, none of which `find_extremes` finds."""
    column = EncodedColumn.encode(values)
    if column.num_distinct == 1:
        return _choose_for_constant(column, type_name, rows)
    times = find_times(column.distinct)
    if isinstance(times, Times):
        return choose_for_times(column, times, type_name, rows)
    choice = _choose_by_type(column, type_name, rows, delimiter)
    return replace(choice, warning=times) if times and not choice.warning else choice


def _choose_by_type(column: EncodedColumn, type_name: str, rows: LabelledRows, delimiter: str | None) -> Choice:
    """Choose the use of a column of at least two distinct values that are no times."""
    name, kind = column.name, column.distinct.dtype
    if kind == pl.String:
        return choose_for_texts(column, rows, delimiter)
    if kind == pl.Boolean:
        found = measure_ids(column, rows)
        why = f"{type_name}{format_missing(column.missing_share)}{format_aucs({'': found})}"
        return Choice(name, why, {"transform": "none"}, auc=None if found is None else found.auc)
    if not kind.is_numeric():
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
    kind = "string" if inner.dtype == pl.String else "integer"
    if kind == "integer" and inner.dtype != pl.Boolean:
        if not inner.dtype.is_numeric():
            return leave_out(present.name, f"{type_name}: lists of values that are neither text nor numbers")
        if not _can_be_ids(inner):
            return _choose_for_number_lists(present, type_name, missing_share)
    if not len(inner):
        return leave_out(present.name, f"{type_name}: all lists are empty")
    why = f"lists of {present.list.len().mean():.1f} values on average, {inner.n_unique():,} distinct"
    settings: Settings = {"type": kind, "multi_hot": True}
    return Choice(present.name, why + format_missing(missing_share), None, [settings])


def _choose_for_number_lists(present: pl.Series, type_name: str, missing_share: float) -> Choice:
    """Choose the use of lists of numbers that are not all whole: a dense column for each element if all lists but empty
    ones, which are missing, have one length."""
    lengths = present.list.len().to_numpy()
    lengths = lengths[lengths > 0]
    low, high = int(lengths.min()), int(lengths.max())
    if low < high:
        return leave_out(present.name, f"{type_name}: lists of {low:,} to {high:,} numbers, not of one length")
    why = f"{type_name}: lists of {format_count(low, 'number')}"
    if low > _MAX_LIST_LENGTH:
        return leave_out(present.name, why, f"numbers, with length = {low} in data.schema.dense")
    missing_share = 1 - (1 - missing_share) * len(lengths) / len(present)
    settings: Settings = {"length": low, "transform": "standardise"}
    return Choice(present.name, why + format_missing(missing_share), settings)


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
    """Describe a column of numbers: its type and its values, and its settings as ids, None if it cannot be ids."""
    distinct = column.distinct
    low, high = (_format_bound(bound) for bound in (distinct.min(), distinct.max()))
    description = f"{type_name}, {column.num_distinct:,} distinct values from {low} to {high}"
    return description, {"type": "integer"} if _can_be_ids(distinct) else None


def _can_be_ids(numbers: pl.Series) -> bool:
    """Whether numbers [n] are whole and within 64 bits, those that stand for missing values aside."""
    found = numbers.cast(pl.Float64).drop_nans().to_numpy()
    found = found[~find_extremes(found)]
    return bool(np.all((found == np.floor(found)) & (found >= -(2.0**63)) & (found <= 2.0**64)))


def _format_bound(number: Any) -> str:
    is_written_out = abs(number) < _MAX_WRITTEN_OUT and number == int(number)
    return f"{int(number):,}" if is_written_out else f"{number:.6g}"
