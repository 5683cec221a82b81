"""Conversion of typed tables, from Parquet or from memory; column types are checked before any value."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import polars as pl
import pyarrow as pa

from dlrm.config import CategoricalColumn, SchemaConfig, format_count
from dlrm.data.errors import DataError
from dlrm.data.raw.block import BadRows, Parsed
from dlrm.data.raw.values.columns import list_columns_to_read, parse_columns
from dlrm.data.raw.values.convert import holds_text
from dlrm.data.raw.values.integers import HexadecimalColumn
from dlrm.data.raw.values.positive_labels import PositiveNumbers
from dlrm.data.raw.values.times import VALID_TIMES, is_time_type

_NUMBERS = "numbers, bool, decimals, or text of numbers"


def parse_table(
    table: pa.Table,
    first_row: int,
    source: str | None,
    schema: SchemaConfig,
    with_labels: bool,
    keep_going: bool,
    stated: Mapping[str, str | None] | None = None,
) -> Parsed:
    """Convert the rows of a table that has passed `check_columns`.

    source: name of the file for errors, which give a row's number as its line; None for rows in memory. first_row:
    number of the table's first row, counted from 1; from 0 for rows in memory. stated: as for `parse_columns`. Raises
    DataError at the first bad row unless `keep_going`, and if a dictionary is damaged.
    """
    bad = BadRows(source, first_row, table.num_rows)
    try:
        return parse_columns(simplify_types(table), schema, bad, keep_going, with_labels, stated)
    # A damaged page of Parquet may hold indices beyond its dictionary.
    except pa.ArrowIndexError as error:
        raise DataError(f"not readable: {error}", source, valid="a complete file") from None


def check_columns(found: pa.Schema, schema: SchemaConfig, file: str | None, with_labels: bool) -> None:
    """Raise DataError if a column to read is missing, occurs twice or has another type.

    file: its name for messages; None for rows in memory.
    """
    counts = Counter(found.names)
    for name in list_columns_to_read(schema, with_labels):
        if name not in counts:
            raise DataError("there is no such column", file, field=name, valid=", ".join(counts)[:300])
        if counts[name] > 1:
            raise DataError("two columns have this name", file, field=name, valid="a different name for each column")
    if with_labels:
        _check_label(found, schema, file)
        for label in schema.further_labels:
            _check_type(found, label.name, _is_number, _NUMBERS, file)
    if with_labels and schema.weight is not None:
        _check_type(found, schema.weight, _is_number, _NUMBERS, file)
    if with_labels and schema.time is not None:
        _check_type(found, schema.time.name, _may_be_times, VALID_TIMES, file)
    lengths = schema.list_lengths
    for name in {column.name: None for column in schema.dense}:
        if name in lengths:
            valid = f"lists of {format_count(lengths[name], 'number')}"
            _check_type(found, name, partial(_is_list_of_numbers, length=lengths[name]), valid, file)
        else:
            has_lists = is_list(get_value_type(found.field(name).type))
            hint = "; or length in the schema, for lists of numbers" if has_lists else ""
            _check_type(found, name, _is_number, _NUMBERS + hint, file)
    for column in schema.categorical:
        _check_categorical(found, column, file)


def _check_label(found: pa.Schema, schema: SchemaConfig, file: str | None) -> None:
    positive = schema.positive
    if positive is None or PositiveNumbers.parse(positive) is not None:
        _check_type(found, schema.label, _is_number, _NUMBERS, file)
    else:
        valid = f"text, or a number as data.schema.positive, which is {positive!r}"
        _check_type(found, schema.label, _is_text, valid, file)


def _check_categorical(found: pa.Schema, column: CategoricalColumn, file: str | None) -> None:
    if column.bucketize is not None:
        _check_type(found, column.name, _is_number, _NUMBERS, file)
        return
    if column.time_part is not None:
        _check_type(found, column.name, _may_be_times, VALID_TIMES, file)
        return
    fits_value = _is_number if column.type == "integer" else _fits_strings
    expected = "integers, floats and decimals that are whole, bool, or text of these"
    if column.type == "string":
        expected = 'text, bytes, integers or decimals of scale 0; or, for whole numbers, type "integer" in the schema'
    if isinstance(column, HexadecimalColumn):
        expected = "whole numbers, or hexadecimal text"
    valid = f"lists of {expected}" if column.multi_hot else expected
    kind = found.field(column.name).type
    if is_list(kind) != column.multi_hot:
        valid += f"; or multi_hot: {str(not column.multi_hot).lower()} in the schema"

    def fits(kind: pa.DataType) -> bool:
        if pa.types.is_null(kind):
            return True
        return is_list(kind) == column.multi_hot and fits_value(kind.value_type if is_list(kind) else kind)

    _check_type(found, column.name, fits, valid, file)


def _check_type(found: pa.Schema, name: str, fits: Callable[[pa.DataType], bool], valid: str, file: str | None) -> None:
    kind = found.field(name).type
    if not fits(kind):
        raise DataError(f"the column's type is {kind}", file, field=name, valid=valid)


def _is_number(kind: pa.DataType) -> bool:
    types, value = pa.types, get_value_type(kind)
    is_typed = types.is_boolean(value) or types.is_floating(value) or types.is_decimal(value)
    return is_typed or types.is_integer(value) or _is_text(kind)


def _may_be_times(kind: pa.DataType) -> bool:
    return is_time_type(get_value_type(kind))


def _is_list_of_numbers(kind: pa.DataType, length: int) -> bool:
    kind = get_value_type(kind)
    if pa.types.is_null(kind):
        return True
    has_length = not pa.types.is_fixed_size_list(kind) or kind.list_size == length
    return is_list(kind) and has_length and _is_number(kind.value_type)


def _fits_strings(kind: pa.DataType) -> bool:
    value = get_value_type(kind)
    is_whole = pa.types.is_integer(value) or (pa.types.is_decimal(value) and value.scale == 0)
    return is_whole or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    value = get_value_type(kind)
    return holds_text(value) or pa.types.is_null(value)


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def get_value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a dictionary's values, or the one in which an extension type such as UUID is stored."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def simplify_types(table: pa.Table) -> pa.Table:
    """Convert columns of views and of extension types, such as UUIDs, to plain ones: Arrow cannot take or filter views
    yet, and few of its functions know extension types."""
    kinds = [simplify_type(kind) for kind in table.schema.types]
    if kinds == table.schema.types:
        return table
    columns = [_simplify_column(column, kind) for column, kind in zip(table.columns, kinds, strict=True)]
    return pa.Table.from_arrays(columns, names=table.schema.names)


def simplify_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that `simplify_types` gives a column of this type."""
    if is_list(kind) and simplify_type(kind.value_type) != kind.value_type:
        return pa.large_list(simplify_type(kind.value_type))
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, simplify_type(kind.value_type), kind.ordered)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _simplify_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if column.type == kind:
        return column
    # Arrow casts no dictionaries of views, as Polars writes categories.
    if pa.types.is_dictionary(kind):
        chunks = [(chunk.indices, chunk.dictionary.cast(kind.value_type)) for chunk in column.chunks]
        return pa.chunked_array(
            [pa.DictionaryArray.from_arrays(*parts, ordered=kind.ordered) for parts in chunks], kind
        )
    if is_list(kind) and pa.types.is_dictionary(kind.value_type):
        return pl.Series(column).to_arrow(compat_level=pl.CompatLevel.oldest())
    return column.cast(kind)
