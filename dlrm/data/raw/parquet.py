"""Parquet with a schema: columns by name, whose types are checked before any row is read."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from dlrm.config import CategoricalColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.bad_rows import BadRows
from dlrm.data.raw.block import Block, Parsed
from dlrm.data.raw.columns import is_text, parsed_columns
from dlrm.data.raw.data_file import DataFile

BLOCK_ROWS = 131_072


def parquet_blocks(file: DataFile, schema: SchemaConfig, block_rows: int = BLOCK_ROWS) -> Iterator[Block]:
    """The rows of `file`, at most `block_rows` of one row group in a block; in errors a row is a line.

    Raises DataError where the file is not Parquet, or has not the columns of the schema.
    """
    with file.open() as raw:
        try:
            yield from _blocks(raw, file, schema, block_rows)
        # Names that are not UTF-8 are what a damaged footer may hold.
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and file.is_remote:
                raise OSError(f"{file.name}: reading failed: {error}") from error
            raise _not_readable(file.name, error) from None


def _blocks(raw: BinaryIO, file: DataFile, schema: SchemaConfig, block_rows: int) -> Iterator[Block]:
    columns = schema.names
    texts = [column.name for column in schema.categorical if column.type == "string" and not column.multi_hot]
    metadata = parquet.read_metadata(raw)
    _check_columns(metadata.schema.to_arrow_schema(), schema, file.name)
    with parquet.ParquetFile(raw, metadata=metadata, read_dictionary=texts) as source:
        num_rows = source.metadata.num_rows
        first = 0
        for group in range(source.num_row_groups):
            for batch in source.iter_batches(block_rows, row_groups=[group], columns=columns):
                # Of the whole file, in proportion: columns that are not read count as well.
                num_bytes = file.num_bytes * (first + batch.num_rows) // num_rows - file.num_bytes * first // num_rows
                table = pa.Table.from_batches([batch])
                yield Block(file.name, batch.num_rows, num_bytes, partial(_parse, table, first + 1, file.name, schema))
                first += batch.num_rows


def _parse(table: pa.Table, first_row: int, file: str, schema: SchemaConfig, keep_going: bool) -> Parsed:
    try:
        return parsed_columns(table, schema, BadRows(file, first_row, table.num_rows), keep_going)
    # Of a damaged page: places in its dictionary that it does not have.
    except pa.ArrowIndexError as error:
        raise _not_readable(file, error) from None


def _check_columns(found: pa.Schema, schema: SchemaConfig, file: str) -> None:
    counts = Counter(found.names)
    for name in schema.names:
        if name not in counts:
            raise DataError("there is no such column", file, field=name, valid=", ".join(counts)[:300])
        if counts[name] > 1:
            raise DataError("there are two columns of this name", file, field=name, valid="one")
    _check_type(found, schema.label, _is_number, "bool, integers or floating point", file)
    if schema.weight is not None:
        _check_type(found, schema.weight, _is_number, "integers or floating point", file)
    for column in schema.dense:
        _check_type(found, column.name, _is_number, "numbers, bool or decimals", file)
    for column in schema.categorical:
        _check_categorical(found, column, file)


def _check_categorical(found: pa.Schema, column: CategoricalColumn, file: str) -> None:
    wanted = "strings" if column.type == "string" else "integers"
    valid = f"lists of {wanted}" if column.multi_hot else wanted
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
        return _is_list(kind) == column.multi_hot and fits_value(kind.value_type if column.multi_hot else kind)

    _check_type(found, column.name, fits, valid, file)


def _check_type(found: pa.Schema, name: str, fits: Callable[[pa.DataType], bool], valid: str, file: str) -> None:
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
    return pa.types.is_integer(_value(kind)) or pa.types.is_null(kind)


def _is_string(kind: pa.DataType) -> bool:
    value = _value(kind)
    return is_text(value) or pa.types.is_binary(value) or pa.types.is_large_binary(value) or pa.types.is_null(value)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _value(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _not_readable(file: str, error: Exception) -> DataError:
    what = f"not readable as Parquet: {str(error).strip().partition(chr(10))[0]}"
    return DataError(what, file, valid="a complete Parquet file")
