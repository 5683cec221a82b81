"""Rows of Parquet files as they are read: with the columns of their paths or of their table, without deleted rows."""

import io
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from dlrm.config import SchemaConfig
from dlrm.data.raw.block import Block
from dlrm.data.raw.data_file import DataFile, name_read_errors
from dlrm.data.raw.file_kinds import remove_buffer
from dlrm.data.raw.tables.table import TableColumn, TableFile, TableVersion
from dlrm.data.raw.typed.typed_table import check_columns, parse_table
from dlrm.data.raw.values.columns import list_columns_to_read

_FIELD_ID = b"PARQUET:field_id"
_KEY_BATCH_ROWS = 1 << 16
_NUM_KEPT = 64
"""Number of files whose deleted rows are kept: a file is opened several times."""


@dataclass(frozen=True)
class ReadColumn:
    """A column as it is read."""

    name: str
    kind: pa.DataType
    """Type of the values; null for a path's, which are text whatever the schema makes of them."""
    stored_name: str | None
    """Name in the file; None: all rows have the same value."""
    value: pa.Scalar
    """Value of all rows without a stored name."""

    @property
    def is_stated(self) -> bool:
        """Whether the path of the file states the value, as text."""
        return pa.types.is_null(self.kind) and pa.types.is_string(self.value.type)


_NOTHING = pa.scalar(None)


def list_read_columns(file: DataFile, stored: pa.Schema) -> list[ReadColumn]:
    """List the columns of `file` as they are read. stored: its own columns.

    A column that the path states and the file has as well is the file's.
    """
    if isinstance(file, TableFile):
        return _find_columns(file.columns, file.constants, stored)
    own = [ReadColumn(name, kind, name, _NOTHING) for name, kind in zip(stored.names, stored.types, strict=True)]
    names = set(stored.names) if file.path_values else set()
    stated = [(name, value) for name, value in file.path_values.items() if name not in names]
    return own + [ReadColumn(name, pa.null(), None, pa.scalar(value, pa.string())) for name, value in stated]


def _find_columns(
    columns: Sequence[TableColumn], constants: Mapping[str, pa.Scalar], stored: pa.Schema
) -> list[ReadColumn]:
    """Find the columns of a table among the columns of a file."""
    ids = {int(field.metadata[_FIELD_ID]): field for field in stored if field.metadata and _FIELD_ID in field.metadata}
    by_name = {field.name: field for field in stored}
    found: list[ReadColumn] = []
    for column in columns:
        if column.field_id is not None and ids:
            field = ids.get(column.field_id)
        else:
            field = next((by_name[name] for name in column.stored_names if name in by_name), None)
        value = constants.get(column.name, _NOTHING)
        found.append(
            ReadColumn(column.name, value.type, None, value)
            if field is None
            else ReadColumn(column.name, field.type, field.name, value)
        )
    return found


def make_read_schema(columns: Sequence[ReadColumn]) -> pa.Schema:
    """Make the schema of columns as they are read."""
    return pa.schema([(column.name, column.kind) for column in columns])


def find_columns_to_read(
    file: DataFile, stored: pa.Schema, schema: SchemaConfig, with_labels: bool = True
) -> list[ReadColumn]:
    """Find the columns of `schema` in a file and its path. stored: its own columns.

    with_labels: include the label and the weight. Raises DataError if a column is missing or has another type.
    """
    columns = list_read_columns(file, stored)
    check_columns(make_read_schema(columns), schema, file.name, with_labels)
    wanted = {*list_columns_to_read(schema, with_labels)}
    return [column for column in columns if column.name in wanted]


class ParquetRows:
    """Rows of an open Parquet file."""

    def __init__(
        self, opened: parquet.ParquetFile, file: DataFile, columns: Sequence[ReadColumn] | None = None
    ) -> None:
        """Find the columns and the deleted rows of `opened`, which is `file`. columns: those to read; None for all."""
        self._opened = opened
        self.columns = list_read_columns(file, opened.schema_arrow) if columns is None else columns
        metadata = opened.metadata
        sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        self._starts = np.cumsum([0, *sizes])
        self._deleted = _find_deleted_rows(file) if isinstance(file, TableFile) else None

    def count_rows(self, group: int) -> int:
        """Count the rows of a row group, deleted ones excluded."""
        start, end = self._starts[group], self._starts[group + 1]
        return int(end - start) - (
            0 if self._deleted is None else int(np.diff(np.searchsorted(self._deleted, (start, end)))[0])
        )

    def iter_batches(self, num_rows: int, group: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns `names` of a row group, at most `num_rows` rows at a time; a batch may have none."""
        wanted = set(names)
        columns = {column.name: column for column in self.columns if column.name in wanted}
        stored = [column.stored_name for column in columns.values() if column.stored_name is not None]
        start = int(self._starts[group])
        for batch in self._opened.iter_batches(num_rows, row_groups=[group], columns=stored):
            end = start + batch.num_rows
            # A dotted name selects the field of a struct as well: the batch may have more columns than wanted.
            arrays = [_read_column(columns[name], batch) for name in names]
            read = pa.RecordBatch.from_arrays(arrays, [*names])
            yield read if self._deleted is None else read.filter(_find_kept(self._deleted, start, end))
            start = end


def _read_column(column: ReadColumn, batch: pa.RecordBatch) -> pa.Array:
    if column.stored_name is None:
        return pa.repeat(column.value, batch.num_rows)
    return batch.column(batch.schema.get_field_index(column.stored_name))


def _find_kept(deleted: NDArray[np.int64], start: int, end: int) -> pa.Array:
    """Return a mask of the rows [start, end) that are not deleted."""
    is_kept = np.ones(end - start, dtype=np.bool_)
    low, high = np.searchsorted(deleted, (start, end))
    is_kept[deleted[low:high] - start] = False
    return pa.array(is_kept)


def _find_deleted_rows(file: TableFile) -> NDArray[np.int64] | None:
    """Find the numbers of the deleted rows of a file, ascending; None if there are none."""
    rows = _compare_with_deletes(file, file.table) if file.equality_deletes else file.deleted_rows
    return rows if len(rows) else None


@lru_cache(_NUM_KEPT)
def _compare_with_deletes(file: TableFile, table: TableVersion) -> NDArray[np.int64]:  # noqa: ARG001, part of the key
    """Find the numbers of the deleted rows of a file that has equality deletes, ascending."""
    deleted = [file.deleted_rows]
    by_keys: dict[tuple[TableColumn, ...], list[DataFile]] = {}
    for delete in file.equality_deletes:
        by_keys.setdefault(delete.keys, []).append(delete.file)
    for keys, files in by_keys.items():
        values = pl.concat([_read_keys(other, keys, {}) for other in files], how="vertical_relaxed")
        deleted.append(_find_equal_rows(_read_keys(file, keys, file.constants), values))
    return np.unique(np.concatenate(deleted))


def _find_equal_rows(keys: pl.DataFrame, deleted: pl.DataFrame) -> NDArray[np.int64]:
    """Find the numbers of the rows of `keys` that occur in `deleted`; missing values are equal."""
    # A column may have had a narrower type when one of them was written.
    common = pl.concat([keys.clear(), deleted.clear()], how="vertical_relaxed").schema
    numbered = keys.cast(common).with_row_index("row")
    found = numbered.join(deleted.cast(common).unique(), on=keys.columns, how="semi", nulls_equal=True)
    return found["row"].to_numpy().astype(np.int64)


def _read_keys(file: DataFile, keys: Sequence[TableColumn], constants: Mapping[str, pa.Scalar]) -> pl.DataFrame:
    """Read columns of a whole file. In the result their names are their numbers, since names of columns may change."""
    parts: list[pl.DataFrame] = []
    with file.open() as raw, name_read_errors(file, "Parquet"), parquet.ParquetFile(raw) as opened:
        columns = _find_columns(keys, constants, opened.schema_arrow)
        stored = [column.stored_name for column in columns if column.stored_name is not None]
        for batch in opened.iter_batches(_KEY_BATCH_ROWS, columns=stored):
            arrays = [_read_column(column, batch) for column in columns]
            parts.append(pl.DataFrame({str(index): pl.Series(values) for index, values in enumerate(arrays)}))
    if not parts:
        return pl.DataFrame(schema={str(index): pl.Null() for index in range(len(keys))})
    return pl.concat(parts, how="vertical_relaxed")


MAX_BLOCK_ROWS = 131_072
BLOCK_BYTES = 32 << 20
"""Approximate bytes of the decoded columns of a block: the bytes of a row are known only as a mean of its row group."""

INT96_UNIT = "us"
"""Unit in which timestamps of INT96 are read: in nanoseconds, years beyond 1677 to 2262 become others."""
_BUFFERS_BYTES = 64 << 20
"""Bytes of read-ahead buffers for all columns of a file together."""
_MIN_BUFFER_BYTES, _MAX_BUFFER_BYTES = 64 << 10, 4 << 20
_NUMBER_BYTES = 8
_LISTED_TEXT_BYTES = 32
"""Assumed bytes of a text in a list: where a file stores each distinct text once, it does not give their length."""


def cut_parquet_blocks(
    file: DataFile,
    schema: SchemaConfig,
    block_rows: int = MAX_BLOCK_ROWS,
    block_bytes: int = BLOCK_BYTES,
    with_labels: bool = True,
) -> Iterator[Block]:
    """Cut `file` into blocks of at most `block_rows` rows of one row group and about `block_bytes`, at least one row.

    Where it is cut depends on the file's bytes alone, and on the rows that its table has deleted. Errors give a row's
    number, deleted ones not counted, as its line. Raises DataError if the file is not Parquet, or does not have the
    columns of the schema.
    """
    with file.open() as opened, name_read_errors(file, "Parquet"):
        # Arrow buffers each column, and a shared buffer is lost at each change of column.
        raw = remove_buffer(opened)
        metadata = parquet.read_metadata(raw)
        columns = find_columns_to_read(file, metadata.schema.to_arrow_schema(), schema, with_labels)
        stored_names = [column.stored_name for column in columns if column.stored_name is not None]
        stored_columns = _find_stored_columns(metadata, stored_names)
        buffer_bytes = min(max(_BUFFERS_BYTES // max(len(stored_columns), 1), _MIN_BUFFER_BYTES), _MAX_BUFFER_BYTES)
        _probe_groups(raw, metadata, stored_names)
        # pre_buffer would read whole row groups at once.
        with parquet.ParquetFile(
            raw,
            metadata=metadata,
            read_dictionary=_find_dictionary_columns(metadata, _list_texts(schema, columns)),
            buffer_size=buffer_bytes,
            pre_buffer=False,
            coerce_int96_timestamp_unit=INT96_UNIT,
        ) as source:
            rows = ParquetRows(source, file, columns)
            # In a damaged file the total number of rows may differ from the sum over row groups.
            num_rows = max(sum(rows.count_rows(group) for group in range(metadata.num_row_groups)), 1)
            first = 0
            for group in range(metadata.num_row_groups):
                max_rows = min(
                    block_rows, max(block_bytes // estimate_row_bytes(metadata.row_group(group), stored_columns), 1)
                )
                for batch in rows.iter_batches(max_rows, group, [column.name for column in columns]):
                    if not batch.num_rows:
                        continue
                    end = first + batch.num_rows
                    # The share of the whole file in proportion to the rows; it includes columns that are not read.
                    num_bytes = file.num_bytes * end // num_rows - file.num_bytes * first // num_rows
                    table = pa.Table.from_batches([batch])
                    parse = partial(
                        parse_table, table, first + 1, file.name, schema, with_labels, stated=file.path_values
                    )
                    yield Block(file.name, batch.num_rows, num_bytes, parse)
                    first = end


def _probe_groups(raw: BinaryIO | io.RawIOBase, metadata: parquet.FileMetaData, columns: list[str]) -> None:
    """Read one row of every row group, so that Arrow raises its error where the metadata of a column is wrong.

    Arrow 26 aborts the process where wrong metadata is used before the column was read.
    """
    source = parquet.ParquetFile(raw, metadata=metadata, buffer_size=_MIN_BUFFER_BYTES, pre_buffer=False)
    for group in range(metadata.num_row_groups):
        next(source.iter_batches(1, row_groups=[group], columns=columns), None)


def _find_stored_columns(metadata: parquet.FileMetaData, columns: list[str]) -> list[int]:
    """Return the indices of the stored columns that belong to `columns`.

    Values of lists are stored under a path below their column's.
    """
    wanted = set(columns)

    def is_wanted(index: int) -> bool:
        parts = metadata.schema.column(index).path.split(".")
        return any(path in wanted for path in accumulate(parts, "{}.{}".format))

    return [index for index in range(metadata.num_columns) if is_wanted(index)]


def _list_texts(schema: SchemaConfig, columns: Sequence[ReadColumn]) -> set[str]:
    """List the columns of single texts, by their names in the file."""
    ids = [column for column in schema.categorical if column.has_ids and not column.multi_hot]
    names = {column.name for column in ids if column.type == "string"}
    return {column.stored_name for column in columns if column.name in names and column.stored_name is not None}


def _find_dictionary_columns(metadata: parquet.FileMetaData, texts: Collection[str]) -> list[str]:
    """Return the columns in `texts` that are dictionary-encoded throughout: distinct texts, and an index for each row.

    Other columns may begin with a dictionary, which the writer gave up when it grew too large. For these Arrow would
    build a dictionary of all texts, which grows from block to block.
    """

    def is_dictionary_encoded(index: int) -> bool:
        groups = (metadata.row_group(group).column(index) for group in range(metadata.num_row_groups))
        return all(
            column.has_dictionary_page
            and column.total_uncompressed_size - (column.data_page_offset - column.dictionary_page_offset)
            <= column.num_values * _NUMBER_BYTES
            for column in groups
        )

    # A field of a struct may have the path of a column whose name has a dot.
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    counts = Counter(paths)
    found = (index for index, path in enumerate(paths) if path in texts and counts[path] == 1)
    return [paths[index] for index in found if is_dictionary_encoded(index)]


def estimate_row_bytes(group: parquet.RowGroupMetaData, stored_columns: Iterable[int]) -> int:
    """Estimate the mean bytes of a decoded row, at least 1."""
    num_bytes = 0
    for index in stored_columns:
        column = group.column(index)
        is_listed_text = column.physical_type == "BYTE_ARRAY" and column.num_values > group.num_rows
        value_bytes = _LISTED_TEXT_BYTES if is_listed_text else _NUMBER_BYTES
        # Where the file stores each distinct value once, the decoded column is larger than the stored one.
        num_bytes += max(column.total_uncompressed_size, column.num_values * value_bytes, 0)
    return max(num_bytes // max(group.num_rows, 1), 1)
