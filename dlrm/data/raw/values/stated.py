"""Comparison of the values of a column with the value that the path of their file states."""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.data.raw.block import format_value
from dlrm.data.raw.values.convert import convert_to_numbers, convert_to_strings, find_missing, holds_text
from dlrm.data.raw.values.times import parse_times

_DAY_SECONDS, _DAY_LETTERS = 86_400, len("2026-11-27")


def find_contradictions(values: pa.Array, stated: str | None) -> NDArray[np.bool_]:
    """Find the values [n] that differ from the one of their path; None: the path states that it is missing.

    Values are equal as texts, numbers or times, and a time equals its day: 7 is 07, and 2026-11-27T05:00 is 2026-11-27.
    """
    if stated is None or pa.types.is_null(values.type) or pa.types.is_nested(values.type):
        return find_missing(values) == (stated is not None)
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    differs = np.append(~_find_equal(encoded.dictionary, stated), True)
    return differs[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()]


def _find_equal(values: pa.Array, stated: str) -> NDArray[np.bool_]:
    kind, one = values.type, pa.array([stated])
    is_time = pa.types.is_temporal(kind)
    texts = values.cast(pa.large_string()) if pa.types.is_decimal(kind) else convert_to_strings(values)
    is_equal = (pl.Series(texts, dtype=pl.String) == stated).fill_null(False).to_numpy()
    if not is_time:
        is_equal = is_equal | (convert_to_numbers(values)[0] == convert_to_numbers(one)[0])
    if is_time or holds_text(kind):
        (seconds, are_times), ((wanted,), (is_wanted,)) = parse_times(values), parse_times(one)
        scale = _DAY_SECONDS if len(stated) <= _DAY_LETTERS else 1
        is_equal = is_equal | (are_times & is_wanted & (seconds // scale == wanted // scale))
    return is_equal


def explain_contradiction(value: pa.Scalar, stated: str | None) -> tuple[str, str]:
    """Return the message and the valid values for another value than its path states."""
    found = str(value.as_py()) if pa.types.is_temporal(value.type) else value.as_py()
    own = f"is {format_value(found)}" if value.is_valid else "is missing"
    told = "that it is missing" if stated is None else format_value(stated)
    return f"{own}, but the path of the file states {told}", "the same value in both, or the column in one of them"
