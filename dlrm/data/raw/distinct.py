"""Columns of values with every distinct value written once."""

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.data.raw.table import CategoricalValues


def distinct_ids(values: NDArray[np.uint32], is_missing: NDArray[np.bool_] | None) -> CategoricalValues:
    """Of 32-bit ids [n]. Sorts (value, place) as one number, several times faster than a sort that returns places."""
    keys = values.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(len(values), dtype=np.uint64)
    if is_missing is not None:
        keys = keys[~is_missing]
    keys.sort()
    halves = keys.view(np.uint32)
    places, ascending = halves[::2], halves[1::2]
    is_first = np.empty(len(ascending), dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    codes = np.full(len(values), -1, dtype=np.int32)
    codes[places] = np.cumsum(is_first, dtype=np.int32) - 1
    return CategoricalValues(codes, pl.Series(ascending[is_first].astype(np.int64)))


def distinct_values(values: pa.Array) -> CategoricalValues:
    """Of strings or int64 numbers [n], null = missing, or a dictionary of them."""
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    codes = _codes(values.indices)
    kind = pl.Int64 if pa.types.is_integer(values.dictionary.type) else pl.String
    entries = pl.Series(values.dictionary, dtype=kind)
    # A file's own dictionary may hold values that these rows do not have, nulls, and the same value twice.
    used = np.flatnonzero(np.bincount(codes + 1, minlength=len(entries) + 1)[1:])
    entries = entries.gather(used)
    order = entries.arg_sort(nulls_last=True).head(len(entries) - entries.null_count())
    ascending = entries.gather(order)
    is_first = (ascending != ascending.shift(1)).fill_null(True)
    place = np.full(len(values.dictionary) + 1, -1, dtype=np.int32)
    place[used[order.to_numpy()]] = np.cumsum(is_first.to_numpy(), dtype=np.int32) - 1
    return CategoricalValues(place[codes], ascending.filter(is_first))


def _codes(indices: pa.Array) -> NDArray[np.int32]:
    return indices.cast(pa.int32()).fill_null(-1).to_numpy()
