"""Labels of columns with any two or more values: the schema's `positive` stands for 1, every other value for 0."""

from collections.abc import Iterable

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.data.errors import DataError
from dlrm.data.raw.bytes_text import decode_utf8
from dlrm.data.raw.convert import convert_to_numbers, convert_to_strings, holds_text

MAX_LABEL_VALUES = 10
"""Largest number of values of the label column that are kept for a message."""
_BOOLEANS = {"true": 1.0, "false": 0.0}


def parse_positive_number(positive: str) -> float | None:
    """Return the number that numeric labels are compared with; None where `positive` is neither number nor boolean."""
    positive = positive.strip()
    return _BOOLEANS.get(positive.lower(), _parse_number(positive))


def match_positive(values: pa.Array, positive: str) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the labels [n], 1 where a value equals `positive` and 0 elsewhere, and a mask [n] of missing values.

    values: text, numbers, booleans, or a dictionary of them. Text is compared without spaces around it, and is also
    equal where both are the same number, or the same boolean in other letters. NaN is a missing number, and text that
    is not UTF-8 is missing, too.
    """
    values = _decode_dictionary(values)
    if not holds_text(values.type):
        numbers, _ = convert_to_numbers(values)
        return (numbers == parse_positive_number(positive)).astype(np.float32), np.isnan(numbers)
    texts = pl.Series(decode_utf8(values), dtype=pl.String).str.strip_chars()
    positive = positive.strip()
    is_positive, is_missing = texts == positive, texts.is_null()
    number = _parse_number(positive)
    if positive.lower() in _BOOLEANS:
        is_positive |= texts.str.to_lowercase() == positive.lower()
    elif number is not None:
        numbers = texts.cast(pl.Float64, strict=False)
        is_positive |= (numbers == number).fill_null(False)
        is_missing |= numbers.is_nan().fill_null(False)
    return is_positive.fill_null(False).to_numpy().astype(np.float32), is_missing.to_numpy()


def list_label_values(values: pa.Array) -> list[str]:
    """List the first MAX_LABEL_VALUES distinct values of a label column as text, sorted; missing ones are left out."""
    distinct = _decode_dictionary(values).unique().drop_null()
    texts = convert_to_strings(distinct) if holds_text(distinct.type) else distinct.cast(pa.string())
    return sorted(set(texts.drop_null().to_pylist()))[:MAX_LABEL_VALUES]


def make_positive_error(
    positive: str, label: str, num_positives: int, label_values: Iterable[str], kind: str = ""
) -> DataError:
    """Make the error for rows none or all of which have the positive label.

    label_values: some values of the label. kind: kind of the rows, such as "evaluation"; empty for all.
    """
    found = ", ".join(map(repr, sorted(set(label_values))[:MAX_LABEL_VALUES]))
    rows = f"{kind} row" if kind else "row"
    return DataError(
        f"{'every' if num_positives else 'no'} {rows} has {positive!r} in the label column {label}",
        field="data.schema.positive",
        valid=f"a value that some rows have and others lack; found {found}",
    )


def explain_missing_label(value: pa.Scalar) -> tuple[str, str]:
    """Return the message and the valid values for a label that `match_positive` calls missing."""
    return "neither UTF-8 text nor a number" if value.is_valid else "the label is missing", "a value"


def _parse_number(text: str) -> float | None:
    return pl.Series([text]).cast(pl.Float64, strict=False)[0]


def _decode_dictionary(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
