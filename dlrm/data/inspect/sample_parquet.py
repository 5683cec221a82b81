"""A sample of rows of Parquet files."""

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
from pyarrow import parquet

from dlrm.data.errors import DataError
from dlrm.data.inspect.sample import MAX_ROWS, FileSample, evenly, without_nan
from dlrm.data.raw.data_file import DataFile

_MAX_DECODED_ROWS = 2_000_000
"""Of row groups that are read to take some of their rows."""
_BATCH_ROWS = 8192


def sample_parquet(files: Sequence[DataFile]) -> FileSample:
    """Rows of row groups spread over all files; columns that some file lacks, or holds otherwise, are of type Null.

    Raises DataError naming the file that cannot be read.
    """
    schemas: dict[str, pa.Schema] = {}
    groups: list[tuple[DataFile, int, int]] = []
    for file in files:
        with _opened(file) as opened:
            schemas[file.name] = opened.schema_arrow
            sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
            groups += [(file, group, size) for group, size in enumerate(sizes) if size]
    num_rows = sum(size for *_, size in groups)
    if not num_rows:
        raise DataError("there are no rows", files[0].name, valid="files with rows")
    types = _types(schemas)
    usable = [name for name, kind in types.items() if not kind.startswith("not ")]
    chosen = [groups[place] for place in evenly(len(groups), _MAX_DECODED_ROWS * len(groups) // num_rows)]
    step = -(-sum(size for *_, size in chosen) // MAX_ROWS)
    parts = [_rows(file, group, usable, step) for file, group, _ in chosen]
    rows = pl.concat(parts, how="vertical_relaxed")
    missing = [pl.lit(None).alias(name) for name in types if name not in usable]
    return FileSample(without_nan(rows.with_columns(missing)).select(list(types)), num_rows, types)


def _types(schemas: dict[str, pa.Schema]) -> dict[str, str]:
    """Of every column of any file; such as `not in b.parquet` where it cannot be taken from all of them."""
    types: dict[str, str] = {}
    for file, schema in schemas.items():
        repeated = [name for name in schema.names if schema.names.count(name) > 1]
        if repeated:
            raise DataError("two columns have this name", file, field=repeated[0], valid="a name of its own for each")
        for field in schema:
            types.setdefault(field.name, str(field.type))
    for name in types:
        kinds = {file: schema.field(name).type for file, schema in schemas.items() if name in schema.names}
        lacking = next((file for file in schemas if file not in kinds), None)
        if lacking:
            types[name] = f"not in {lacking}"
        elif len({_family(kind) for kind in kinds.values()}) > 1:
            types[name] = "not of one type: " + ", ".join(sorted({str(kind) for kind in kinds.values()}))
    return types


def _family(kind: pa.DataType) -> str:
    """Types of one family become one column."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    return str(kind)


def _rows(file: DataFile, group: int, columns: list[str], step: int) -> pl.DataFrame:
    """Every `step`-th row of a row group."""
    parts: list[pa.RecordBatch] = []
    position = 0
    with _opened(file) as opened:
        for batch in opened.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns):
            first = -position % step
            parts.append(batch.take(pa.array(range(first, batch.num_rows, step), type=pa.int64())))
            position += batch.num_rows
    frame = pl.DataFrame([pl.Series(name, pa.chunked_array([p.column(name) for p in parts])) for name in columns])
    # What other programs write as bytes is text more often than not.
    return frame.with_columns(pl.col(pl.Categorical, pl.Enum, pl.Binary).cast(pl.String, strict=False))


def _opened(file: DataFile) -> parquet.ParquetFile:
    try:
        return parquet.ParquetFile(file.open())
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"not readable: {error}", file.name, valid="a Parquet file") from None
