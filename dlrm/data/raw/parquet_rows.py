"""Rows of Parquet files as they are read: with the columns of their paths or of their table, without deleted rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.table_file import TableColumn, TableFile, TableVersion

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
    """Find the columns of a table among those of a file."""
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
    try:
        with file.open() as raw, parquet.ParquetFile(raw) as opened:
            columns = _find_columns(keys, constants, opened.schema_arrow)
            stored = [column.stored_name for column in columns if column.stored_name is not None]
            for batch in opened.iter_batches(_KEY_BATCH_ROWS, columns=stored):
                arrays = [_read_column(column, batch) for column in columns]
                parts.append(pl.DataFrame({str(index): pl.Series(values) for index, values in enumerate(arrays)}))
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"not readable as Parquet: {reason}", file.name, valid="a complete Parquet file") from None
    if not parts:
        return pl.DataFrame(schema={str(index): pl.Null() for index in range(len(keys))})
    return pl.concat(parts, how="vertical_relaxed")
