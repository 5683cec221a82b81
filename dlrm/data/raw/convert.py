"""Conversion of Arrow columns, text or typed, to numbers and strings."""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.data.raw.bytes_text import convert_bytes, decode_utf8, is_bytes

MAX_FLOAT32 = float(np.finfo(np.float32).max)
BOOLEANS = {"true": 1.0, "false": 0.0}


def convert_to_numbers(values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return values [n], NaN where missing or not a number, and a mask [n] of present values that are no numbers.

    values: numbers, booleans, text or nulls, or a dictionary of them. Blank text is missing.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if holds_text(values.type):
        return _convert_texts_to_numbers(values)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers, np.zeros(len(values), dtype=np.bool_)


def _convert_texts_to_numbers(values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    if is_text(values.type):
        read = pl.Series(values).cast(pl.Float64, strict=False)
        if read.null_count() == values.null_count:
            return read.to_numpy(), np.zeros(len(values), dtype=np.bool_)
    texts = pl.Series(convert_to_strings(values), dtype=pl.String)
    read = parse_numbers(texts, pl.Float64())
    read = read.fill_null(read_booleans(texts))
    is_wrong = read.is_null() & (texts != "").fill_null(True)
    return read.to_numpy(), is_wrong.to_numpy() & ~find_missing(values)


def find_extremes(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Find numbers [n] that stand for no value: infinity, those beyond float32, and the limits of 64-bit integers.

    Programs write these where a value is missing, as the smallest int64 is pandas' missing time.
    """
    magnitude = np.abs(numbers)
    is_extreme = magnitude >= 2.0**63
    if is_extreme.any():
        is_extreme = (magnitude >= MAX_FLOAT32) | (magnitude == 2.0**63) | (numbers == 2.0**64)
    return is_extreme


def parse_numbers(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    """Parse texts to numbers of type `kind`, with or without spaces around them; null where a text is no number."""
    read = texts.cast(kind, strict=False)
    # Most files have no such spaces: look for them only where something could not be read.
    return read if read.null_count() == texts.null_count() else texts.str.strip_chars().cast(kind, strict=False)


def read_booleans(texts: pl.Series) -> pl.Series:
    """Read the texts [n] of booleans, in any letters, as 1.0 and 0.0; null where a text is none."""
    words = texts.str.strip_chars().str.to_lowercase()
    return words.replace_strict(BOOLEANS, default=None, return_dtype=pl.Float64)


def convert_to_strings(values: pa.Array) -> pa.Array:
    """Convert to strings or to a dictionary of strings; null where a value is missing or text is not UTF-8.

    values: text, bytes, integers or decimals of scale 0, or a dictionary of them.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(values.indices, convert_to_strings(values.dictionary))
    if is_bytes(kind):
        return convert_bytes(values)
    if pa.types.is_decimal(kind):
        return values.cast(pa.decimal256(76, 0)).cast(pa.large_string())
    return decode_utf8(values) if is_text(kind) else values.cast(pa.large_string())


def find_missing(values: pa.Array) -> NDArray[np.bool_]:
    """Return a mask [n] of nulls."""
    return values.is_null().to_numpy(zero_copy_only=False)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def holds_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text, bytes, which are text mostly, or a dictionary of either."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(value) or is_bytes(value)
