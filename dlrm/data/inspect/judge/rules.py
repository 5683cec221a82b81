"""Rules that choose the use of a column, by its type; those for numbers are in `number_rules`."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import polars as pl

from dlrm.config import format_count
from dlrm.config.schema import MAX_NAME_LENGTH, DecimalMark
from dlrm.config.time_format import TimePart, list_parts
from dlrm.data.inspect.judge.choice import Choice, Settings, format_aucs, format_missing, leave_out
from dlrm.data.inspect.judge.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.judge.number_rules import MIN_REPEATS, MIN_ROWS_FOR_UNIQUENESS, choose_for_numbers
from dlrm.data.inspect.judge.prediction import Prediction, predict_by_value
from dlrm.data.inspect.sample.text_columns import find_decimal_mark
from dlrm.data.inspect.sample.time_forms import Times, find_times
from dlrm.data.raw.values.convert import find_extremes, parse_number_texts
from dlrm.data.raw.values.times import get_time_part

_SEPARATORS = "|;"
_LIST_SHARE = 0.1
"""Share of distinct texts with a separator above which the texts are treated as lists."""
_FEW_SHARE = 0.2
"""Share of non-numbers among distinct texts below which the column is likely one of numbers."""
_FREE_TEXT_LENGTH = 30
"""Least mean characters of distinct texts for free text, if they also have _FREE_TEXT_WORDS words on average."""
_FREE_TEXT_WORDS = 4
_FREE_TEXT_REPEATS = 3.0
"""Mean number of rows with the text of a row, in all files, below which free text is left out."""


def choose_for_texts(column: EncodedColumn, rows: LabelledRows, delimiter: str | None) -> Choice:
    """Choose the use of a column of text with at least two distinct values.

    delimiter: the one of text files, where lists are texts with separators; None for typed files.
    """
    mark, warning = find_decimal_mark(column.distinct, delimiter)
    if mark is not None:
        return _choose_for_written_numbers(column, mark, rows)
    return replace(_choose_for_plain_texts(column, rows, delimiter), warning=warning)


def _choose_for_written_numbers(column: EncodedColumn, mark: DecimalMark, rows: LabelledRows) -> Choice:
    """Choose the use of a column of texts that are numbers with this decimal mark."""
    numbers = EncodedColumn.encode(parse_number_texts(column.distinct, mark))
    codes = np.append(numbers.codes, -1)[column.codes]
    description = f"text, numbers such as {column.distinct[0]!r}, {numbers.num_distinct:,} distinct values"
    encoded = EncodedColumn(column.name, codes, numbers.distinct)
    choice = choose_for_numbers(encoded, description, rows, {"type": "string"})
    written: Settings = {"decimal_mark": mark}
    return replace(
        choice,
        dense=None if choice.dense is None else choice.dense | written,
        categorical=[settings | written if "bucketize" in settings else settings for settings in choice.categorical],
    )


def _choose_for_plain_texts(column: EncodedColumn, rows: LabelledRows, delimiter: str | None) -> Choice:
    name, missing = column.name, format_missing(column.missing_share)
    description = f"text, {column.num_distinct:,} distinct values{missing}"
    repeats = rows.estimate_repeats(column)
    separator = None if delimiter is None else _find_separator(column.distinct, delimiter)
    if separator is not None:
        num_inner = column.distinct.str.split(separator).explode().n_unique()
        settings: Settings = {"type": "string", "multi_hot": True, "separator": separator}
        why = f"texts with {separator!r} between values, {num_inner:,} distinct{missing}"
        return Choice(name, why, None, [settings], "one value: remove multi_hot and separator")
    is_known = column.num_present >= MIN_ROWS_FOR_UNIQUENESS
    lengths, words = column.distinct.str.len_chars(), column.distinct.str.count_matches(r"\S+")
    is_long = lengths.to_numpy().mean() >= _FREE_TEXT_LENGTH and words.to_numpy().mean() >= _FREE_TEXT_WORDS
    if is_known and repeats < _FREE_TEXT_REPEATS and is_long:
        return leave_out(name, f"{description}: free text, such as {column.distinct[0][:_FREE_TEXT_LENGTH]!r}")
    if is_known and repeats < MIN_REPEATS:
        few = "a different value in every row" if repeats == 1.0 else "nearly every row has its own value"
        return leave_out(name, f"{description}: {few}")
    found = measure_ids(column, rows)
    auc = None if found is None else found.auc
    otherwise = _describe_as_numbers(column.distinct)
    why = description + format_aucs({"as ids": found})
    return Choice(name, why, None, [{"type": "string"}], otherwise, auc)


def measure_ids(column: EncodedColumn, rows: LabelledRows) -> Prediction | None:
    """Measure how well the rate of each value predicts the label; None with too few rows."""
    return predict_by_value(rows.count(column)) if rows.can_measure else None


def _find_separator(distinct: pl.Series, delimiter: str) -> str | None:
    """Find the separator of texts that are lists: splitting at it must leave fewer distinct values."""
    for separator in _SEPARATORS.replace(delimiter, ""):
        share = distinct.str.contains(separator, literal=True).mean()
        if share is not None and float(share) > _LIST_SHARE:  # type: ignore[arg-type], of booleans
            return separator if distinct.str.split(separator).explode().n_unique() <= len(distinct) else None
    return None


def _describe_as_numbers(distinct: pl.Series) -> str:
    """Describe how texts could be numbers, where nearly all are; empty if they are not."""
    no_numbers = distinct.filter(distinct.str.strip_chars().cast(pl.Float64, strict=False).is_null())
    if not 0 < len(no_numbers) < _FEW_SHARE * len(distinct):
        return ""
    return f"dense, if texts such as {no_numbers[0]!r} are left blank: all others are numbers"


_HOUR_SECONDS, _DAY_SECONDS = 3600, 86_400
_PERIOD_DAYS: dict[TimePart, int] = {"hour": 1, "weekday": 7, "day": 31, "month": 365, "year": 3653}
"""Days that the times must cover for a part of them: in less than its period a part only separates old rows from new
ones. A year never comes again; times that cover ten years are of births and the like, rather than of the rows
themselves."""


def choose_for_times(column: EncodedColumn, times: Times, type_name: str, rows: LabelledRows) -> Choice:
    """Choose the parts of a column of times that predict the label. times: times of the distinct values."""
    seconds, form = times.seconds, times.time_format
    # Unlike those of Python, dates of numpy may be after the year 9999.
    dates = " to ".join(
        str(np.datetime64(int(end), "s").astype("datetime64[D]")) for end in (seconds.min(), seconds.max())
    )
    written = "" if form is None else f" written as {form}"
    description = f"{type_name}, times{written} from {dates}{format_missing(column.missing_share)}"
    # The last time lasts as well: a day, or with times of day an hour.
    last_seconds = _HOUR_SECONDS if np.any(seconds % _DAY_SECONDS) else _DAY_SECONDS
    num_days = (np.ptp(seconds) + last_seconds) / _DAY_SECONDS
    predictions: dict[str, Prediction] = {}
    chosen: list[Settings] = []
    parts = get_args(TimePart) if form is None else list_parts(form)
    # Times of day without a date tell nothing of how long they cover.
    num_days = np.inf if parts == ["hour"] else num_days
    for part in parts:
        of_value = EncodedColumn.encode(pl.Series(get_time_part(seconds, part)))
        if num_days < _PERIOD_DAYS[part] or of_value.num_distinct < 2:
            continue
        if rows.can_measure:
            codes = np.append(of_value.codes, -1)[column.codes]
            found = predict_by_value(rows.count(EncodedColumn(column.name, codes, of_value.distinct)))
            predictions[part] = found
            if not found.gain.is_certain:
                continue
        chosen.append({"time_part": part} if form is None else {"time_part": part, "time_format": form})
    figures = format_aucs(predictions)
    auc = max((found.auc for found in predictions.values()), default=None)
    if chosen:
        return Choice(column.name, description + figures, None, chosen, auc=auc)
    why = "no part of them predicts the label" if predictions else "they cover too short a time for hours or weekdays"
    return leave_out(column.name, f"{description}: {why}{figures.replace(':', ',', 1)}", auc=auc)


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
    """Choose the use of a column with some present value and without extremes (see `find_extremes`)."""
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
    """Return why a schema cannot name a column; empty if it can."""
    if not name.strip():
        return "it has no name"
    return f"its name is longer than {MAX_NAME_LENGTH} characters" if len(name) > MAX_NAME_LENGTH else ""


def _find_fault(values: pl.Series, type_name: str) -> str:
    """Return why the column cannot be used whatever it holds; empty if it can."""
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
