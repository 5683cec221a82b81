"""Parquet with a schema: columns by name, whose types are checked before any row is read."""

import io
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from dlrm.config import SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.block import Block, Parsed
from dlrm.data.raw.columns import names_to_read
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.typed import check_columns, parsed_table

MAX_BLOCK_ROWS = 131_072
BLOCK_BYTES = 32 << 20
"""Of the columns that are read, decoded: about, since what one row holds is known as the mean of its row group."""

_BUFFERS_BYTES = 64 << 20
"""Of all columns of a file, read ahead."""
_MIN_BUFFER_BYTES, _MAX_BUFFER_BYTES = 64 << 10, 4 << 20
_NUMBER_BYTES = 8
_LISTED_TEXT_BYTES = 32
"""Taken for a text in a list where the file writes every distinct text once: nothing in it says how long they are."""


def parquet_blocks(
    file: DataFile,
    schema: SchemaConfig,
    block_rows: int = MAX_BLOCK_ROWS,
    block_bytes: int = BLOCK_BYTES,
    with_labels: bool = True,
) -> Iterator[Block]:
    """The rows of `file`, at most `block_rows` of one row group in a block, and about `block_bytes`, but one row at
    least; where they are cut depends on the file's bytes alone. In errors a row is a line.

    Raises DataError where the file is not Parquet, or has not the columns of the schema.
    """
    with file.open() as raw:
        try:
            yield from _blocks(_unbuffered(raw), file, schema, block_rows, block_bytes, with_labels)
        # Names that are not UTF-8 are what a damaged footer may hold.
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and file.is_remote:
                raise OSError(f"{file.name}: reading failed: {error}") from error
            raise _not_readable(file.name, error) from None


def _unbuffered(raw: BinaryIO) -> BinaryIO | io.RawIOBase:
    """Columns have buffers of their own: one for all is lost at each step from column to column."""
    return raw.raw if isinstance(raw, io.BufferedReader) else raw


def _blocks(
    raw: BinaryIO | io.RawIOBase,
    file: DataFile,
    schema: SchemaConfig,
    block_rows: int,
    block_bytes: int,
    with_labels: bool,
) -> Iterator[Block]:
    columns = names_to_read(schema, with_labels)
    metadata = parquet.read_metadata(raw)
    check_columns(metadata.schema.to_arrow_schema(), schema, file.name, with_labels)
    places = _places(metadata, columns)
    buffer_bytes = min(max(_BUFFERS_BYTES // len(places), _MIN_BUFFER_BYTES), _MAX_BUFFER_BYTES)
    _look_into_groups(raw, metadata, columns)
    # Without pre_buffer: it reads whole row groups.
    with parquet.ParquetFile(
        raw,
        metadata=metadata,
        read_dictionary=_written_once(metadata, schema),
        buffer_size=buffer_bytes,
        pre_buffer=False,
    ) as source:
        # What a damaged file says of all rows need not be true of its groups.
        num_rows = max(sum(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)), 1)
        first = 0
        for group in range(metadata.num_row_groups):
            most_rows = min(block_rows, max(block_bytes // _row_bytes(metadata.row_group(group), places), 1))
            for batch in source.iter_batches(most_rows, row_groups=[group], columns=columns):
                # Of the whole file, in proportion: columns that are not read count as well.
                num_bytes = file.num_bytes * (first + batch.num_rows) // num_rows - file.num_bytes * first // num_rows
                table = pa.Table.from_batches([batch])
                parse = partial(_parse, table, first + 1, file.name, schema, with_labels)
                yield Block(file.name, batch.num_rows, num_bytes, parse)
                first += batch.num_rows


def _look_into_groups(raw: BinaryIO | io.RawIOBase, metadata: parquet.FileMetaData, columns: list[str]) -> None:
    """Raise Arrow's error where what the file says of a column cannot be true.

    Arrow (26) aborts the process where that is asked for before the column was read.
    """
    source = parquet.ParquetFile(raw, metadata=metadata, buffer_size=_MIN_BUFFER_BYTES, pre_buffer=False)
    for group in range(metadata.num_row_groups):
        next(source.iter_batches(1, row_groups=[group], columns=columns), None)


def _places(metadata: parquet.FileMetaData, columns: list[str]) -> list[int]:
    """Of the parts of `columns` among all that the file stores: values of lists lie at paths below their column's."""
    wanted = set(columns)

    def is_wanted(place: int) -> bool:
        parts = metadata.schema.column(place).path.split(".")
        return any(path in wanted for path in accumulate(parts, "{}.{}".format))

    return [place for place in range(metadata.num_columns) if is_wanted(place)]


def _written_once(metadata: parquet.FileMetaData, schema: SchemaConfig) -> list[str]:
    """The columns of which the file holds distinct texts and, for each row, which one it is.

    Others may have a dictionary as well, which the writer has given up when it grew too large. Arrow would make one of
    all their texts, which grows from block to block.
    """
    texts = {column.name for column in schema.categorical if column.type == "string" and not column.multi_hot}

    def is_written_once(place: int) -> bool:
        groups = (metadata.row_group(group).column(place) for group in range(metadata.num_row_groups))
        return all(
            column.has_dictionary_page
            and column.total_uncompressed_size - (column.data_page_offset - column.dictionary_page_offset)
            <= column.num_values * _NUMBER_BYTES
            for column in groups
        )

    paths = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    return [name for name, place in paths.items() if name in texts and is_written_once(place)]


def _row_bytes(group: parquet.RowGroupMetaData, places: list[int]) -> int:
    """Mean bytes of a decoded row, at least 1."""
    num_bytes = 0
    for place in places:
        column = group.column(place)
        is_listed_text = column.physical_type == "BYTE_ARRAY" and column.num_values > group.num_rows
        value_bytes = _LISTED_TEXT_BYTES if is_listed_text else _NUMBER_BYTES
        # Distinct values may be written once: what is decoded is more than the file holds then.
        num_bytes += max(column.total_uncompressed_size, column.num_values * value_bytes, 0)
    return max(num_bytes // max(group.num_rows, 1), 1)


def _parse(
    table: pa.Table, first_row: int, file: str, schema: SchemaConfig, with_labels: bool, keep_going: bool
) -> Parsed:
    try:
        return parsed_table(table, first_row, file, schema, keep_going, with_labels)
    # Of a damaged page: places in its dictionary that it does not have.
    except pa.ArrowIndexError as error:
        raise _not_readable(file, error) from None


def _not_readable(file: str, error: Exception) -> DataError:
    what = f"not readable as Parquet: {str(error).strip().partition(chr(10))[0]}"
    return DataError(what, file, valid="a complete Parquet file")
