"""Conversion of Arrow columns of any type that can hold whole numbers to integer ids of 64 bits.

The same id has the same value in every format and type: integers, floats and decimals that are whole, booleans, and
text of any of these. An id from 2^63 to 2^64 - 1 becomes the int64 with the same bits, a negative number.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.compute import call_function

from dlrm.config import CategoricalColumn
from dlrm.data.raw.block import format_value
from dlrm.data.raw.values.convert import (
    MAX_FLOAT32,
    convert_to_strings,
    decode_utf8,
    find_missing,
    holds_text,
    read_booleans,
)

_WIDEST_INTEGER = pa.decimal256(76, 0)
_EXACT_FLOAT64 = 2.0**53


@dataclass(frozen=True)
class IntegerIds:
    """The ids of n values."""

    ids: pa.Array
    """[n], int64; null if a value is missing or no id."""
    is_bad: NDArray[np.bool_]
    """[n], values that are present and no integers of 64 bits."""
    num_extreme: int = 0
    """Number of infinite floats and of those beyond float32, which are missing ids."""
    num_rounded: int = 0
    """Number of ids from floats so large that each stands for several integers."""


def convert_to_integers(values: pa.Array) -> IntegerIds:
    """Convert a column of integers, floats, decimals, booleans, text or nulls, or a dictionary of them, to ids."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if holds_text(kind):
        return _convert_texts(values)
    if pa.types.is_floating(kind):
        exact = 2.0 ** (np.finfo(kind.to_pandas_dtype()).nmant + 1)
        return _convert_floats(values.cast(pa.float64()).to_numpy(zero_copy_only=False), exact)
    if pa.types.is_decimal(kind):
        return _convert_decimals(values)
    ids = values.view(pa.int64()) if pa.types.is_uint64(kind) else values.cast(pa.int64())
    return IntegerIds(ids, np.zeros(len(values), dtype=np.bool_))


def _convert_floats(numbers: NDArray[np.float64], exact: float) -> IntegerIds:
    """Convert floats [n], NaN = missing. exact: magnitude from which each stands for several integers."""
    is_missing, magnitude = np.isnan(numbers), np.abs(numbers)
    is_extreme = magnitude >= MAX_FLOAT32
    is_id = (numbers == np.floor(numbers)) & (numbers >= -(2.0**63)) & (numbers <= 2.0**64)
    small = np.where(is_id & (numbers < 2.0**63), numbers, 0.0).astype(np.int64)
    # 2^64 is what the largest id, 2^64 - 1, becomes as a float.
    large = np.where(is_id & (numbers >= 2.0**63), np.minimum(numbers - 2.0**64, -1.0), 0.0).astype(np.int64)
    num_rounded = int(np.count_nonzero(is_id & (magnitude >= exact)))
    ids = pa.array(small + large, mask=~is_id)
    return IntegerIds(ids, ~(is_id | is_missing | is_extreme), int(np.count_nonzero(is_extreme)), num_rounded)


def _convert_decimals(values: pa.Array) -> IntegerIds:
    """Convert decimals of any width and scale, without loss."""
    kind, is_missing = values.type, find_missing(values)
    whole = values.cast(_WIDEST_INTEGER, safe=False)
    is_id = ~is_missing
    if kind.scale > 0:
        is_id &= call_function("equal", [whole.cast(kind), values]).fill_null(False).to_numpy(zero_copy_only=False)
    # Four words of 64 bits, the lowest one first, in two's complement.
    words = np.frombuffer(whole.buffers()[1], dtype="<u8").reshape(-1, 4)[whole.offset : whole.offset + len(whole)]
    ids = words[:, 0].view(np.int64)
    is_id &= np.all(words[:, 1:] == 0, axis=1) | (np.all(words[:, 1:] == 2**64 - 1, axis=1) & (ids < 0))
    return IntegerIds(pa.array(ids, mask=~is_id), ~(is_id | is_missing))


def _convert_texts(values: pa.Array) -> IntegerIds:
    is_missing = find_missing(values)
    texts = pl.Series(convert_to_strings(values), dtype=pl.String)
    ids = texts.cast(pl.Int64, strict=False)
    unread = np.flatnonzero(ids.is_null().to_numpy() & ~is_missing)
    if not len(unread):
        return IntegerIds(ids.to_arrow(), np.zeros(len(values), dtype=np.bool_))
    # Most columns hold nothing but the digits of int64: look for other forms only in what could not be read.
    found = _convert_other_texts(texts.gather(unread))
    is_bad = np.zeros(len(values), dtype=np.bool_)
    is_bad[unread] = found.is_bad
    ids = ids.scatter(unread, pl.Series(found.ids))
    return IntegerIds(ids.to_arrow(), is_bad, found.num_extreme, found.num_rounded)


def _convert_other_texts(texts: pl.Series) -> IntegerIds:
    """Convert texts [n] that may have spaces around them, zeros after a point, or an exponent, or be beyond int64."""
    texts = texts.str.strip_chars()
    digits = texts.str.replace(r"\.0*$", "")
    unsigned = digits.cast(pl.UInt64, strict=False).reinterpret(signed=True)
    ids = digits.cast(pl.Int64, strict=False).fill_null(unsigned)
    # What has digits alone is exact or beyond 64 bits: as a float, it would be rounded to another id.
    is_exact = digits.str.contains(r"^[+-]?[0-9]+$").fill_null(False).to_numpy()
    numbers = texts.cast(pl.Float64, strict=False).fill_null(read_booleans(texts))
    floats = _convert_floats(np.where(is_exact, np.nan, numbers.fill_null(np.nan).to_numpy()), _EXACT_FLOAT64)
    is_no_number = (numbers.is_null() & (texts != "").fill_null(True)).to_numpy()
    is_bad = ids.is_null().to_numpy() & (is_exact | is_no_number | floats.is_bad)
    return IntegerIds(ids.fill_null(pl.Series(floats.ids)).to_arrow(), is_bad, floats.num_extreme, floats.num_rounded)


_ID = "^[0-9a-fA-F]{1,8}$"
VALID = "1 to 8 of 0-9 a-f, or blank"


class HexadecimalColumn(CategoricalColumn):
    """A column of integer ids whose text is hexadecimal, as in Criteo TSV. Values of an integer type stay unchanged."""


def parse_hexadecimal_ids(texts: pa.Array) -> tuple[pl.Series, pl.Series]:
    """Parse 32-bit ids. Return them [n], null if missing, blank or invalid, and a mask [n] of blank texts.

    texts: strings or bytes [n], or a dictionary of them.
    """
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    series = pl.Series(decode_utf8(texts), dtype=pl.String)
    ids = series.set(~series.str.contains(_ID).fill_null(True), None)
    return ids.str.to_integer(base=16, dtype=pl.UInt32), (series == "").fill_null(False)


def explain_not_hexadecimal(value: pa.Scalar) -> tuple[str, str]:
    """Return the message and the valid values for a text that is not a hexadecimal id."""
    return f"{format_value(value.as_py())} is not a hexadecimal id", VALID
