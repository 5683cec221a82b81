"""Rules for columns of text: ids, lists of ids, numbers, or text that no other row has."""

from dataclasses import replace

import numpy as np
import polars as pl

from dlrm.config.schema import DecimalMark
from dlrm.data.inspect.choice import Choice, Settings, format_aucs, format_missing, leave_out
from dlrm.data.inspect.labelled import EncodedColumn, LabelledRows
from dlrm.data.inspect.number_forms import find_decimal_mark
from dlrm.data.inspect.number_rules import MIN_REPEATS, MIN_ROWS_FOR_UNIQUENESS, choose_for_numbers
from dlrm.data.inspect.prediction import Prediction, predict_by_value
from dlrm.data.raw.number_texts import parse_number_texts

_SEPARATORS = "|;"
_LIST_SHARE = 0.1
"""Share of distinct texts with a separator above which the texts are treated as lists."""
_FEW_SHARE = 0.2
"""Share of distinct texts that are not numbers below which the column is likely one of numbers."""
_FREE_TEXT_LENGTH = 30
"""Mean characters of distinct texts from which they may be free text, where they have as many words as that."""
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
    if is_known and repeats < _FREE_TEXT_REPEATS and _is_free_text(column.distinct):
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


def _is_free_text(distinct: pl.Series) -> bool:
    lengths, words = distinct.str.len_chars().mean(), distinct.str.count_matches(r"\S+").mean()
    return float(lengths) >= _FREE_TEXT_LENGTH and float(words) >= _FREE_TEXT_WORDS  # type: ignore[arg-type]


def _describe_as_numbers(distinct: pl.Series) -> str:
    """Describe how texts could be numbers, where nearly all are; empty if they are not."""
    no_numbers = distinct.filter(distinct.str.strip_chars().cast(pl.Float64, strict=False).is_null())
    if not 0 < len(no_numbers) < _FEW_SHARE * len(distinct):
        return ""
    return f"dense, if texts such as {no_numbers[0]!r} are left blank: all others are numbers"
