"""Reading of tables as the reader of Parquet sees them, and as the libraries of the tables do."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_files
from dlrm.data.raw.typed.parquet import ParquetRows

Rows = Counter[tuple[Any, ...]]


def find_table(path: Path | str) -> list[DataFile]:
    return find_files([str(path)], "data.train", None, Path("/"))


def read_files(files: Iterable[DataFile]) -> pa.Table:
    """All rows of all columns, two rows at a time."""
    parts: list[pa.Table] = []
    for file in files:
        with file.open() as raw, parquet.ParquetFile(raw) as opened:
            rows = ParquetRows(opened, file)
            names = [column.name for column in rows.columns]
            for group in range(opened.num_row_groups):
                found = [_replace_views(pa.Table.from_batches([batch])) for batch in rows.iter_batches(2, group, names)]
                assert sum(table.num_rows for table in found) == rows.count_rows(group)
                parts += found
    return pa.concat_tables(parts, promote_options="permissive")


def _replace_views(table: pa.Table) -> pa.Table:
    kinds = [pa.string() if pa.types.is_string_view(kind) else kind for kind in table.schema.types]
    return table.cast(pa.schema(zip(table.schema.names, kinds, strict=True)))


def count_rows(table: pa.Table, names: Sequence[str] | None = None) -> Rows:
    """Rows, each with the number of times that it occurs, whatever the order of rows."""
    columns = [table[name].to_pylist() for name in names or sorted(table.schema.names)]
    return Counter(zip(*columns, strict=True))
