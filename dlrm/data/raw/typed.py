"""Conversion of typed tables, from Parquet or from memory; column types are checked before any value."""

from collections import Counter
from collections.abc import Callable

import pyarrow as pa

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.bad_rows import BadRows
from dlrm.data.raw.block import Parsed
from dlrm.data.raw.columns import list_columns_to_read, parse_columns
from dlrm.data.raw.convert import holds_text
from dlrm.data.raw.hexadecimal import HexadecimalColumn
from dlrm.data.raw.positive_labels import parse_positive_number
from dlrm.data.raw.times import VALID_TIMES, is_time_type


def parse_table(
    table: pa.Table, first_row: int, source: str | None, schema: SchemaConfig, keep_going: bool, with_labels: bool
) -> Parsed:
    """Convert the rows of a table that has passed `check_columns`.

    source: name of the file for errors, which give a row's number as its line; None for rows in memory. first_row:
    number of the table's first row, counted from 1; from 0 for rows in memory. Raises DataError at the first bad row
    unless `keep_going`, and pyarrow.ArrowIndexError where a dictionary is damaged.
    """
    bad = BadRows(source, first_row, table.num_rows)
    return parse_columns(_replace_views(table), schema, bad, keep_going, with_labels)


def check_columns(found: pa.Schema, schema: SchemaConfig, file: str | None, with_labels: bool) -> None:
    """Raise DataError where a column to read is missing, occurs twice or has another type.

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
    if with_labels and schema.weight is not None:
        _check_type(found, schema.weight, _is_number, "integers or floating point", file)
    for column in schema.dense:
        _check_numbers(found, column, file)
    for column in schema.categorical:
        _check_categorical(found, column, file)


def _check_label(found: pa.Schema, schema: SchemaConfig, file: str | None) -> None:
    positive = schema.positive
    if positive is None:
        valid = 'bool, integers or floating point; or data.schema.positive, the value that stands for 1, such as "yes"'
        _check_type(found, schema.label, _is_number, valid, file)
    elif parse_positive_number(positive) is None:
        valid = f"text, or a number as data.schema.positive, which is {positive!r}"
        _check_type(found, schema.label, _is_string, valid, file)
    else:
        valid = "text, bool, integers or floating point"
        _check_type(
            found, schema.label, lambda kind: _is_string(kind) or _is_number(_get_value_type(kind)), valid, file
        )


def _check_numbers(found: pa.Schema, column: DenseColumn | CategoricalColumn, file: str | None) -> None:
    def fits(kind: pa.DataType) -> bool:
        return _is_number(kind) or (column.decimal_mark is not None and holds_text(kind))

    valid = "numbers, bool or decimals; or text, with its decimal_mark in the schema"
    _check_type(found, column.name, fits, valid, file)


def _check_categorical(found: pa.Schema, column: CategoricalColumn, file: str | None) -> None:
    if column.bucketize is not None:
        _check_numbers(found, column, file)
        return
    if column.time_part is not None:
        _check_type(found, column.name, lambda kind: is_time_type(_get_value_type(kind)), VALID_TIMES, file)
        return
    is_hexadecimal = isinstance(column, HexadecimalColumn)
    expected = "strings" if column.type == "string" else "integers"
    expected += ", or hexadecimal text" if is_hexadecimal else ""
    valid = f"lists of {expected}" if column.multi_hot else expected
    kind = found.field(column.name).type
    value = kind.value_type if _is_list(kind) else kind
    fits_other = _is_integer if column.type == "string" else _is_string
    if fits_other(value) and not pa.types.is_null(value):
        other = "integer" if column.type == "string" else "string"
        valid += f'; or type "{other}" in the schema'
    if _is_list(kind) != column.multi_hot:
        valid += f"; or multi_hot: {str(not column.multi_hot).lower()} in the schema"

    def fits(kind: pa.DataType) -> bool:
        if pa.types.is_null(kind):
            return True
        fits_value = _is_string if column.type == "string" else _is_integer
        value = kind.value_type if _is_list(kind) else kind
        return _is_list(kind) == column.multi_hot and (fits_value(value) or (is_hexadecimal and _is_string(value)))

    _check_type(found, column.name, fits, valid, file)


def _check_type(found: pa.Schema, name: str, fits: Callable[[pa.DataType], bool], valid: str, file: str | None) -> None:
    kind = found.field(name).type
    if not fits(kind):
        raise DataError(f"the column's type is {kind}", file, field=name, valid=valid)


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_null(kind)
    )


def _is_integer(kind: pa.DataType) -> bool:
    return pa.types.is_integer(_get_value_type(kind)) or pa.types.is_null(kind)


def _is_string(kind: pa.DataType) -> bool:
    return holds_text(kind) or pa.types.is_null(_get_value_type(kind))


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _get_value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _replace_views(table: pa.Table) -> pa.Table:
    """Convert columns of string and binary views to plain ones: Arrow cannot take or filter views yet."""

    def replace_view(kind: pa.DataType) -> pa.DataType:
        if _is_list(kind) and replace_view(kind.value_type) != kind.value_type:
            return pa.large_list(replace_view(kind.value_type))
        if pa.types.is_string_view(kind):
            return pa.large_string()
        return pa.large_binary() if pa.types.is_binary_view(kind) else kind

    kinds = [replace_view(kind) for kind in table.schema.types]
    if kinds == table.schema.types:
        return table
    return table.cast(pa.schema(zip(table.schema.names, kinds, strict=True)))
