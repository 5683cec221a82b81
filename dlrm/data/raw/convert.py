"""Conversion of Arrow columns, text or typed, to numbers, integers and strings."""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray


def convert_to_numbers(values: pa.Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return values [n], NaN where missing or not a number, and a mask [n] of present values that are no numbers."""
    if is_text(values.type):
        read = parse_numbers(pl.Series(values), pl.Float64())
        return read.to_numpy(), read.is_null().to_numpy() & ~find_missing(values)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers, np.zeros(len(values), dtype=np.bool_)


def convert_to_integers(values: pa.Array) -> pa.Array:
    """Convert to int64; null where a value is missing, not an integer or beyond int64."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type == pa.int64():
        return values
    numbers = pl.Series(values)
    read = parse_numbers(numbers, pl.Int64()) if is_text(values.type) else numbers.cast(pl.Int64, strict=False)
    return read.to_arrow()


def parse_numbers(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    """Parse texts to numbers of type `kind`, with or without spaces around them; null where a text is no number."""
    read = texts.cast(kind, strict=False)
    # Most files have no such spaces: look for them only where something could not be read.
    return read if read.null_count() == texts.null_count() else texts.str.strip_chars().cast(kind, strict=False)


def convert_to_strings(values: pa.Array) -> pa.Array:
    """Convert to strings or to a dictionary of strings; null where a value is missing or not UTF-8."""
    if pa.types.is_dictionary(values.type):
        return pa.DictionaryArray.from_arrays(values.indices, convert_to_strings(values.dictionary))
    # Strings of a Parquet file have not been checked to be UTF-8 yet.
    raw = values.cast(pa.large_binary())
    try:
        return raw.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([_decode(value) for value in raw.to_pylist()], type=pa.large_string())


def _decode(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def find_missing(values: pa.Array) -> NDArray[np.bool_]:
    """Return a mask [n] of nulls."""
    return values.is_null().to_numpy(zero_copy_only=False)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def holds_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text, bytes of text, or a dictionary of either."""
    types = pa.types
    value = kind.value_type if types.is_dictionary(kind) else kind
    return is_text(value) or types.is_binary(value) or types.is_large_binary(value) or types.is_binary_view(value)
