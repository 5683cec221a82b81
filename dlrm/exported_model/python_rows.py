"""Conversion of rows in Python lists and arrays to an Arrow table."""

import difflib
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.values.integers import HexadecimalColumn
from dlrm.data.raw.values.times import VALID_TIMES

_Column = DenseColumn | CategoricalColumn
_WIDE_INTEGER = pa.decimal128(38, 0)
_MAX_SHOWN = 300
"""Largest number of characters of a list of names in a message."""


def make_table(rows: Mapping[str, Any], schema: SchemaConfig) -> pa.Table:
    """Convert a dictionary of columns, or of one row's values, to a table of the feature columns of `schema`.

    Label and weight are left out. Raises DataError if `rows` is not a dictionary, or if a column is missing,
    unknown, of another length, or not a list of values of one type. It does not check the type against the schema.
    """
    if not isinstance(rows, Mapping):
        valid = "a dict of columns: a list of values for each; predict_table takes tables"
        raise DataError(f"the rows are a {type(rows).__name__}, not a dict", valid=valid)
    uses = _group_by_name(schema)
    _check_names(rows, list(uses), schema.target_names)
    scalars = {name: _is_scalar(rows[name]) for name, columns in uses.items() if not any(map(_has_lists, columns))}
    is_one_row = bool(scalars) and all(scalars.values())
    arrays: dict[str, pa.Array] = {}
    for name, columns in uses.items():
        if not is_one_row and _is_scalar(rows[name]):
            message = "is one value, but other columns are lists of values"
            raise DataError(message, field=name, valid="a list of values, or one value for every column")
        arrays[name] = _convert_values([rows[name]] if is_one_row else rows[name], columns)
    first = next(iter(arrays))
    for name, array in arrays.items():
        if len(array) != len(arrays[first]):
            message = f"has the length {len(array):,}, but {first} has the length {len(arrays[first]):,}"
            raise DataError(message, field=name, valid="the same length for every column")
    return pa.table(arrays)


def _group_by_name(schema: SchemaConfig) -> dict[str, list[_Column]]:
    """Return the uses of each input column, by its name."""
    uses: dict[str, list[_Column]] = {}
    for column in (*schema.dense, *schema.categorical):
        uses.setdefault(column.name, []).append(column)
    return uses


def _check_names(rows: Mapping[str, Any], wanted: list[str], ignored: set[str]) -> None:
    names = ", ".join(wanted)[:_MAX_SHOWN]
    for name in rows:
        if name not in wanted and name not in ignored:
            close = difflib.get_close_matches(str(name), wanted, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise DataError(f"is not a column of the model{hint}", field=str(name), valid=names)
    for name in wanted:
        if name not in rows:
            raise DataError("the column is missing", field=name, valid=f"all of {names}")


def _convert_values(values: Any, columns: Sequence[_Column]) -> pa.Array:
    """Convert the values of a column to Arrow. Raises DataError if they are not a list of values of one type.

    columns: uses of the column, at least one.
    """
    name = columns[0].name
    if isinstance(values, Mapping | Set):
        message = f"is a {type(values).__name__}, not a list"
        raise DataError(message, field=name, valid="a list of values")
    if isinstance(values, np.ndarray) and values.ndim > 1:
        values = list(values)
    try:
        array = _make_array(values, is_list=any(map(_has_lists, columns)))
    # Which of these errors Arrow raises depends on the value.
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        cause = " ".join(str(error).split())[:_MAX_SHOWN]
        valid = _describe_valid(columns[0])
        raise DataError(f"is not a list of values of one type: {cause}", field=name, valid=valid) from None
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _make_array(values: Any, *, is_list: bool) -> pa.Array | pa.ChunkedArray:
    try:
        return pa.array(values, from_pandas=True)
    except OverflowError:
        # Integers beyond int64, for which Arrow itself chooses no type.
        return pa.array(values, pa.list_(_WIDE_INTEGER) if is_list else _WIDE_INTEGER)


def _describe_valid(column: _Column) -> str:
    if isinstance(column, DenseColumn) and column.element is not None:
        return "lists of numbers, None where missing"
    if isinstance(column, DenseColumn) or column.bucketize is not None:
        return "numbers, None where missing"
    if column.time_part is not None:
        return f"{VALID_TIMES}; None where missing"
    values = "integers of 64 bits" if column.type == "integer" else "texts"
    values += ", or texts of 1 to 8 hexadecimal digits" if isinstance(column, HexadecimalColumn) else ""
    return f"lists of {values}, None where missing" if column.multi_hot else f"{values}, None where missing"


def _has_lists(column: _Column) -> bool:
    return column.multi_hot if isinstance(column, CategoricalColumn) else column.element is not None


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | bytes) or not hasattr(value, "__len__") or getattr(value, "shape", None) == ()
