"""Encoding of columns as distinct values, ascending, and codes that refer to them."""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.data.raw.block import CategoricalValues

_MAX_ROUNDED = 2.0**23
"""Magnitude from which float32 has whole numbers alone."""


def encode_distinct_ids(values: NDArray[np.uint32], is_missing: NDArray[np.bool_] | None) -> CategoricalValues:
    """Encode 32-bit ids [n]. is_missing: [n]; None if no id is missing.

    Sorts (value, position) as one 64-bit number, several times faster than a sort that returns positions.
    """
    keys = values.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(len(values), dtype=np.uint64)
    if is_missing is not None:
        keys = keys[~is_missing]
    keys.sort()
    halves = keys.view(np.uint32)
    positions, ascending = halves[::2], halves[1::2]
    is_first = np.empty(len(ascending), dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    codes = np.full(len(values), -1, dtype=np.int32)
    codes[positions] = np.cumsum(is_first, dtype=np.int32) - 1
    return CategoricalValues(codes, pl.Series(ascending[is_first].astype(np.int64)))


def encode_distinct_numbers(values: NDArray[np.float64]) -> CategoricalValues:
    """Encode numbers [n], NaN = missing, as rounded by `round_to_float32`."""
    is_present = ~np.isnan(values)
    # Adding 0.0 turns -0.0 into 0.0: which of the two is kept must not depend on the order of the rows.
    distinct, positions = np.unique(round_to_float32(values[is_present]) + 0.0, return_inverse=True)
    codes = np.full(len(values), -1, dtype=np.int32)
    codes[is_present] = positions
    return CategoricalValues(codes, pl.Series(distinct))


def round_to_float32(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round numbers [n] to float32, so that 0.1 is the same number from a file with float32, with float64 or with text.

    Numbers that float32 holds only roughly, and that a file with float32 could not have, stay as they are. Keeps the
    order.
    """
    magnitude = np.abs(values)
    is_rounded = (magnitude < _MAX_ROUNDED) & (magnitude >= np.finfo(np.float32).tiny)
    rounded = values.copy()
    rounded[is_rounded] = values[is_rounded].astype(np.float32)
    return rounded


def encode_distinct_values(values: pa.Array) -> CategoricalValues:
    """Encode strings or int64 numbers [n], null = missing, or a dictionary of them."""
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    codes, dictionary = values.indices.cast(pa.int32()).fill_null(-1).to_numpy(), values.dictionary
    # The dictionary of a file may hold values that these rows do not have, nulls, and duplicates.
    is_used = np.bincount(codes + 1, minlength=len(dictionary) + 1)[1:] > 0
    is_used &= dictionary.is_valid().to_numpy(zero_copy_only=False)
    used = np.flatnonzero(is_used)
    if pa.types.is_integer(dictionary.type):
        # numpy takes a tenth of the time where there are few values.
        numbers = dictionary.fill_null(0).to_numpy().astype(np.int64, copy=False)
        found, positions = np.unique(numbers[used], return_inverse=True)
        ascending = pl.Series(found)
    else:
        ascending, positions = _find_distinct_texts(pl.Series(dictionary, dtype=pl.String).gather(used))
    position_of = np.full(len(dictionary) + 1, -1, dtype=np.int32)
    position_of[used] = positions
    return CategoricalValues(position_of[codes], ascending)


def _find_distinct_texts(texts: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """Return the distinct texts, ascending, and the position of each of `texts` [n] among them."""
    order = texts.arg_sort()
    ordered = texts.gather(order)
    is_first = (ordered != ordered.shift(1)).fill_null(True)
    positions = np.empty(len(texts), dtype=np.int64)
    positions[order.to_numpy()] = np.cumsum(is_first.to_numpy()) - 1
    return ordered.filter(is_first), positions
