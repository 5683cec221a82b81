"""Labels of columns with any two or more values: the schema's `positive` stands for 1, every other value for 0.

`positive` is a value, such as "yes", or a comparison that numbers pass, such as ">= 4".
"""

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.data.errors import DataError
from dlrm.data.raw.block import format_value
from dlrm.data.raw.values.convert import (
    BOOLEANS,
    convert_to_numbers,
    convert_to_strings,
    decode_utf8,
    holds_text,
    read_booleans,
)

MAX_LABEL_VALUES = 10
"""Largest number of values of the label column that are kept for a message."""
_COMPARISON = re.compile(r"(>=|<=|>|<)\s*(\S+)")
_OPERATORS: dict[str, Callable[[NDArray[np.float64], float], NDArray[np.bool_]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "": operator.eq,
}
_SIGNS = "^[<>≤≥=]"
"""Pattern of the beginning of texts that name a range of numbers, as the labels ">50K" and "<=50K" do."""


@dataclass(frozen=True)
class PositiveNumbers:
    """The numbers that stand for 1."""

    sign: str
    """`>=`, `<=`, `>` or `<`; empty for one number."""
    bound: float

    @classmethod
    def parse(cls, positive: str) -> "PositiveNumbers | None":
        """Parse `positive`; None if it is neither a number, a boolean nor a comparison with a finite number."""
        positive = positive.strip()
        if positive.lower() in BOOLEANS:
            return cls("", BOOLEANS[positive.lower()])
        found = _COMPARISON.fullmatch(positive)
        sign, text = ("", positive) if found is None else found.groups()
        bound = _parse_number(text)
        if bound is None or (sign and not math.isfinite(bound)):
            return None
        return cls(sign, bound)

    def match(self, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which of the numbers [n] stand for 1; NaN does not."""
        return _OPERATORS[self.sign](numbers, self.bound)

    def round_to(self, kind: pa.DataType) -> "PositiveNumbers":
        """Return them with the bound as a column of this type holds it: 0.1 of float32 is no 0.1 of float64."""
        if not pa.types.is_floating(kind):
            return self
        return PositiveNumbers(self.sign, float(np.dtype(kind.to_pandas_dtype()).type(self.bound)))


def match_positive(values: pa.Array, positive: str) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the labels [n], 1 where a value is `positive` and 0 elsewhere, and a mask [n] of missing or bad values.

    values: text, numbers, booleans, or a dictionary of them. Text is compared without spaces around it, and is also
    positive if it is the same number, or one that passes the comparison; booleans are 1 and 0. NaN is a missing number,
    and text that is not UTF-8 is missing, too. Beside a comparison text must be a number, or name a range of numbers
    itself, such as "<=50K".
    """
    values = _decode_dictionary(values)
    numbers_for_1 = PositiveNumbers.parse(positive)
    if not holds_text(values.type):
        numbers, _ = convert_to_numbers(values)
        if numbers_for_1 is None:
            return np.zeros(len(numbers), dtype=np.float32), np.isnan(numbers)
        return numbers_for_1.round_to(values.type).match(numbers).astype(np.float32), np.isnan(numbers)
    texts = pl.Series(decode_utf8(values), dtype=pl.String).str.strip_chars()
    positive = positive.strip()
    is_positive, is_missing = (texts == positive).fill_null(False), texts.is_null()
    if numbers_for_1 is not None:
        numbers = texts.cast(pl.Float64, strict=False)
        if numbers.null_count() > texts.null_count():
            numbers = numbers.fill_null(read_booleans(texts))
        is_positive |= pl.Series(numbers_for_1.match(numbers.to_numpy()))
        is_missing |= numbers.is_nan().fill_null(False)
        if numbers_for_1.sign:
            is_missing |= numbers.is_null() & ~is_positive & ~texts.str.contains(_SIGNS).fill_null(False)
    return is_positive.to_numpy().astype(np.float32), is_missing.to_numpy()


def list_label_values(values: pa.Array) -> list[str]:
    """List the first MAX_LABEL_VALUES distinct values of a label column as text, sorted; missing ones are left out."""
    distinct = _decode_dictionary(values).unique().drop_null()
    texts = convert_to_strings(distinct) if holds_text(distinct.type) else distinct.cast(pa.string())
    return sorted(set(texts.drop_null().to_pylist()))[:MAX_LABEL_VALUES]


def make_positive_error(
    positive: str, label: str, num_positives: int, label_values: Iterable[str], kind: str = ""
) -> DataError:
    """Make the error if no row, or every row, has the positive label.

    label_values: some values of the label. kind: kind of the rows, such as "evaluation"; empty for all.
    """
    found = ", ".join(map(repr, sorted(set(label_values))[:MAX_LABEL_VALUES]))
    rows = f"{'every' if num_positives else 'no'} {f'{kind} row' if kind else 'row'}"
    numbers = PositiveNumbers.parse(positive)
    is_comparison = numbers is not None and numbers.sign
    has, valid = ("has a value", "a comparison that some rows pass and others do not") if is_comparison else ("has", "")
    return DataError(
        f"{rows} {has} {positive if is_comparison else repr(positive)} in the label column {label}",
        field="data.schema.positive",
        valid=f"{valid or 'a value that some rows have and others lack'}; found {found}",
    )


def explain_missing_label(value: pa.Scalar) -> tuple[str, str]:
    """Return the message and the valid values for a label that `match_positive` calls missing."""
    if not value.is_valid:
        return "the label is missing", "a value"
    text = convert_to_strings(pa.array([value.as_py()]))[0].as_py() if holds_text(value.type) else None
    if text is None or _parse_number(text.strip()) is not None:
        return "neither UTF-8 text nor a number", "a value"
    return f"{format_value(text)} is no number, as data.schema.positive wants", "a number"


def _parse_number(text: str) -> float | None:
    return pl.Series([text]).cast(pl.Float64, strict=False)[0]


def _decode_dictionary(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
