"""Comparison of the values of a column with the value that the path of their file states."""

import re

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.data.raw.block import format_value
from dlrm.data.raw.values.convert import convert_to_numbers, convert_to_strings, find_missing
from dlrm.data.raw.values.times import is_time_type, parse_times

_DAY_SECONDS = 86_400
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}")
_INTEGER = r"^\s*[+-]?0*([0-9]+)(?:\.0*)?\s*$"
"""Texts of integers, in the syntax of Python and of Rust; the group is the digits from the first that counts."""


def find_contradictions(
    values: pa.Array, stated: str | None, *, is_time: bool = False, is_number: bool = False
) -> NDArray[np.bool_]:
    """Find the values [n] that differ from the one of their path; None: the path states that it is missing.

    Values are equal as texts or numbers: 7 is 07. Times are equal as times too, and a time equals its day:
    2026-11-27T05:00 is 2026-11-27. is_time: whether the column holds times, whatever its type. is_number: whether it is
    read as numbers, so that the text NaN is missing.
    """
    kind = values.type
    if pa.types.is_null(kind) or pa.types.is_nested(kind):
        return find_missing(values) == (stated is not None)
    if stated is None:
        return ~_find_missing(values, is_number)
    encoded = values if pa.types.is_dictionary(kind) else values.dictionary_encode()
    differs = np.append(~_find_equal(encoded.dictionary, stated, is_time), True)
    return differs[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()]


def _find_missing(values: pa.Array, is_number: bool) -> NDArray[np.bool_]:
    if not is_number:
        return values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    numbers, is_wrong = convert_to_numbers(values)
    return np.isnan(numbers) & ~is_wrong


def _find_equal(values: pa.Array, stated: str, is_time: bool) -> NDArray[np.bool_]:
    kind, one = values.type, pa.array([stated])
    is_temporal = pa.types.is_temporal(kind)
    found = values.cast(pa.large_string()) if pa.types.is_decimal(kind) else convert_to_strings(values)
    texts = pl.Series(found, dtype=pl.String)
    is_equal = (texts == stated).fill_null(False).to_numpy()
    if not is_temporal:
        is_same_number = convert_to_numbers(values)[0] == convert_to_numbers(one)[0]
        whole = re.match(_INTEGER, stated)
        if whole and not pa.types.is_floating(kind):
            # Integers beyond 2^53 share their float64 with others.
            is_same_number &= (texts.str.extract(_INTEGER) == whole[1]).fill_null(True).to_numpy()
        is_equal = is_equal | is_same_number
    if is_temporal or (is_time and is_time_type(kind)):
        (seconds, are_times), ((wanted,), (is_wanted,)) = parse_times(values), parse_times(one)
        scale = _DAY_SECONDS if _DAY.fullmatch(stated) else 1
        is_equal = is_equal | (are_times & is_wanted & (seconds // scale == wanted // scale))
    return is_equal


def explain_contradiction(value: pa.Scalar, stated: str | None) -> tuple[str, str]:
    """Return the message and the valid values for another value than its path states."""
    found = str(value.as_py()) if pa.types.is_temporal(value.type) else value.as_py()
    own = f"is {format_value(found)}" if value.is_valid else "is missing"
    told = "that it is missing" if stated is None else format_value(stated)
    return f"{own}, but the path of the file states {told}", "the same value in both, or the column in one of them"
