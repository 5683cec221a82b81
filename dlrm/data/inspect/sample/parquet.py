"""Sampling of the rows of Parquet and Arrow IPC files."""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import parquet

from dlrm.data.errors import DataError
from dlrm.data.inspect.sample.file_sample import (
    MAX_ROWS,
    SEVERAL_TYPES,
    FileSample,
    UnsharedColumn,
    find_unshared_columns,
    is_usable,
    pick_columns,
    replace_nan,
    spread_evenly,
)
from dlrm.data.inspect.sample.text_columns import convert_column, name_type
from dlrm.data.raw.data_file import DataFile, name_read_errors
from dlrm.data.raw.typed.arrow import open_arrow
from dlrm.data.raw.typed.parquet import (
    INT96_UNIT,
    ParquetRows,
    ReadColumn,
    estimate_row_bytes,
    list_read_columns,
    make_read_schema,
)
from dlrm.data.raw.typed.typed_table import get_value_type, is_list, simplify_type, simplify_types
from dlrm.data.raw.values.convert import convert_bytes, convert_to_strings, holds_text, is_bytes, is_text
from dlrm.data.raw.values.integers import convert_to_integers

_MAX_DECODED_ROWS = 2_000_000
"""Approximate number of rows of the row groups that are decoded to take some of their rows."""
_MAX_BYTES = 256 << 20
"""Approximate limit on the bytes of the sampled rows: fewer are taken where rows are long."""
_BATCH_ROWS, _BATCH_BYTES = 8192, 32 << 20
"""Rows and approximate bytes that are decoded at a time, whichever is reached first."""
_BUFFER_BYTES = 1 << 20
_NO_TEXT = "not UTF-8 text"


def sample_parquet(files: Sequence[DataFile], others: Sequence[DataFile] = ()) -> FileSample:
    """Sample rows from row groups that are spread over all files.

    others: files that should have the same columns, such as the evaluation files; no rows of them are sampled. Columns
    that one of `files` lacks or has in another type have type Null in the sample. Raises DataError, which names the
    file, if a file cannot be read.
    """
    schemas: dict[str, pa.Schema] = {}
    groups: list[tuple[DataFile, int, int]] = []
    row_bytes = 1
    stated: set[str] = set()
    for file in files:
        with _open(file) as opened:
            rows = ParquetRows(opened, file)
            stated |= {column.name for column in rows.columns if column.is_stated}
            schemas[file.name] = _get_schema(file, rows.columns)
            for index in range(opened.num_row_groups):
                if num_rows := rows.count_rows(index):
                    # Arrow 26 aborts the process where the size of a damaged column is used before it was read.
                    next(opened.iter_batches(1, row_groups=[index]), None)
                    groups.append((file, index, num_rows))
                    decoded = opened.metadata.row_group(index)
                    row_bytes = max(row_bytes, estimate_row_bytes(decoded, range(decoded.num_columns)))
    num_rows = sum(size for *_, size in groups)
    if not num_rows:
        raise DataError("there are no rows", files[0].name, valid="files with rows")
    all_schemas = schemas | {file.name: _read_schema(file) for file in others}
    unshared = find_unshared_columns({file: schema.names for file, schema in all_schemas.items()})
    # The file that a column names is the first one that lacks it, and `others` come last.
    unshared_here = {name: column for name, column in unshared.items() if column.file in schemas}
    usable = [name for name, kind in _find_types(schemas, unshared_here).items() if is_usable(kind)]
    types = _find_types(all_schemas, unshared)
    chosen = [groups[index] for index in spread_evenly(len(groups), _MAX_DECODED_ROWS * len(groups) // num_rows)]
    parts = _read_groups(chosen, usable, row_bytes)
    # A column that is not UTF-8 text in one file is left out of all.
    types |= {name: _NO_TEXT for name in usable if any(name not in part.columns for part in parts)}
    usable = [name for name in usable if types[name] != _NO_TEXT]
    # Other files may have the column themselves.
    texts = [name for name in usable if name in stated]
    parts = [part.with_columns(part[name].cast(pl.String) for name in texts) for part in parts]
    # Text columns without any value have type Null; concatenation with text columns of other parts makes them text.
    rows = _narrow_integers(pl.concat([pick_columns(part, usable) for part in parts], how="vertical_relaxed"))
    rows = rows.with_columns(convert_column(rows[name]) for name in texts)
    types |= {name: f"{name_type(rows[name].dtype)} of the paths" for name in texts if is_usable(types[name])}
    missing = [pl.Series(name, [None] * rows.height, pl.Null) for name in types if name not in usable]
    rows = replace_nan(rows.with_columns(missing))
    return FileSample(pick_columns(rows, types), num_rows, types, unshared=unshared)


def _read_groups(chosen: Sequence[tuple[DataFile, int, int]], columns: list[str], row_bytes: int) -> list[pl.DataFrame]:
    """Read rows of row groups, given with their numbers of rows, that are evenly spread over them; see `_read_rows`."""
    max_rows = max(1, min(MAX_ROWS, _MAX_BYTES // row_bytes))
    step = -(-sum(size for *_, size in chosen) // max_rows)
    batch_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
    return [_read_rows(file, group, columns, step, batch_rows) for file, group, _ in chosen]


def _read_schema(file: DataFile) -> pa.Schema:
    with _open(file) as opened:
        return _get_schema(file, list_read_columns(file, opened.schema_arrow))


def _get_schema(file: DataFile, columns: Sequence[ReadColumn]) -> pa.Schema:
    """Return the schema of a file as it is read. Raises DataError if two of its columns have one name."""
    repeated = [name for name, number in Counter(column.name for column in columns).items() if number > 1]
    if repeated:
        raise DataError(
            "two columns have this name", file.name, field=repeated[0], valid="a different name for each column"
        )
    return make_read_schema(columns)


def _find_types(schemas: Mapping[str, pa.Schema], unshared: Mapping[str, UnsharedColumn]) -> dict[str, str]:
    """Return the type of every column of any file, by name.

    unshared: columns that one of the files lacks. If a column cannot be read from all files, the type is a reason
    such as `not in b.parquet`.
    """
    # Distinct types in the order of the files, with the first file of each. Files mostly have the same ones, which are
    # looked at once.
    files_by_kind: dict[str, dict[pa.DataType, str]] = {}
    for file, schema in schemas.items():
        for name, kind in zip(schema.names, schema.types, strict=True):
            files_by_kind.setdefault(name, {}).setdefault(kind, file)
    types: dict[str, str] = {}
    for name, files in files_by_kind.items():
        if name in unshared:
            types[name] = str(unshared[name])
            continue
        # A file in which a column has no value may store it without a type.
        typed = [kind for kind in files if _get_family(kind)] or [*files]
        first_of_family = {_get_family(kind): kind for kind in reversed(typed)}
        if len(first_of_family) > 1:
            found = sorted(f"{kind} in {files[kind]}" for kind in first_of_family.values())
            types[name] = SEVERAL_TYPES + ", ".join(found)
        elif any(_get_read_type(kind) is None for kind in typed):
            types[name] = f"not a number, a text or a list of them: {typed[0]}"
        else:
            types[name] = str(typed[0])
    return types


def _get_family(kind: pa.DataType) -> str:
    """Return the family of a type: a column may have several types of one family in different files.

    Empty for a type of no values, or of empty lists alone, which goes with all others.
    """
    types = pa.types
    kind = get_value_type(kind)
    if types.is_null(kind):
        return ""
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind):
        return "number"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "time"
    if is_list(kind):
        family = _get_family(kind.value_type)
        return family and f"list of {family}"
    return "text" if holds_text(kind) else str(kind)


def _get_read_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which values are inspected; None if no schema can describe them."""
    types = pa.types
    kind = get_value_type(kind)
    if is_list(kind):
        value = _get_read_type(kind.value_type)
        return None if value is None or types.is_large_list(value) else pa.large_list(value)
    if is_text(kind):
        # Whether it is UTF-8 has not been checked yet.
        return pa.large_binary()
    if is_bytes(kind):
        return kind if types.is_fixed_size_binary(kind) else pa.binary()
    # Decimals of scale 0 may be ids, which floats would round.
    if types.is_float16(kind) or (types.is_decimal(kind) and kind.scale != 0):
        return pa.float64()
    if types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    is_known = any(
        is_of(kind)
        for is_of in (types.is_primitive, types.is_boolean, types.is_null, types.is_temporal, types.is_decimal)
    )
    return kind if is_known else None


def _read_rows(file: DataFile, group: int, columns: list[str], step: int, batch_rows: int) -> pl.DataFrame:
    """Read one in `step` rows of a row group, without columns of text that is not UTF-8.

    Rows are read in pairs of neighbours: where rows are sorted by an id, only neighbours show that it occurs again.
    """
    parts: dict[str, list[pa.Array]] = {name: [] for name in columns}
    position = 0
    with _open(file) as opened:
        for batch in ParquetRows(opened, file).iter_batches(batch_rows, group, columns):
            pairs = np.arange(position, position + batch.num_rows) // 2
            indices = pa.array(np.flatnonzero(pairs % step == 0))
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                parts[name].append(_cast(column, _get_read_type(column.type)).take(indices))
            position += batch.num_rows
        found = {name: _convert_to_series(pa.chunked_array(arrays)) for name, arrays in parts.items()}
    return pl.DataFrame({name: series for name, series in found.items() if series is not None})


def _cast(values: pa.Array, kind: pa.DataType | None) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(kind, safe=False)


def _convert_to_series(values: pa.ChunkedArray) -> pl.Series | None:
    """Convert values of a type of `_get_read_type` to Polars; None if a text is not UTF-8."""
    array = values.combine_chunks()
    is_list = pa.types.is_large_list(array.type)
    try:
        converted = _convert_values(array.values if is_list else array)
    except pa.ArrowInvalid:
        return None
    return pl.Series(
        pa.LargeListArray.from_arrays(array.offsets, converted, mask=array.is_null()) if is_list else converted
    )


def _convert_values(values: pa.Array) -> pa.Array:
    """Convert text, bytes and decimals to types that are inspected. Raises ArrowInvalid if a text is not UTF-8."""
    kind = values.type
    if pa.types.is_large_binary(kind):
        return values.cast(pa.large_string())
    if is_bytes(kind):
        return convert_bytes(values)
    if not pa.types.is_decimal(kind):
        return values
    read = convert_to_integers(values)
    present = values.drop_null().cast(pa.float64(), safe=False).to_numpy()
    is_signed, is_large = present.min(initial=0.0) < 0.0, present.max(initial=0.0) >= 2.0**63
    # Decimals beyond 64 bits are ids if their text is.
    if read.is_bad.any() or (is_signed and is_large):
        return convert_to_strings(values)
    return read.ids.view(pa.uint64()) if is_large else read.ids


def _narrow_integers(rows: pl.DataFrame) -> pl.DataFrame:
    """Replace 128-bit integers, the result of joining signed and unsigned ones, by a type that files have."""
    wide = [name for name, kind in rows.schema.items() if kind == pl.Int128]
    kinds = (pl.Int64, pl.UInt64, pl.String)
    return rows.with_columns(
        next(
            cast
            for kind in kinds
            if (cast := rows[name].cast(kind, strict=False)).null_count() == rows[name].null_count()
        )
        for name in wide
    )


@contextmanager
def _open(file: DataFile) -> Iterator[parquet.ParquetFile]:
    """Open a Parquet file. Raises DataError if it cannot be read, on opening or inside the `with`."""
    with (
        file.open() as raw,
        name_read_errors(file, "Parquet"),
        parquet.ParquetFile(
            raw, buffer_size=_BUFFER_BYTES, pre_buffer=False, coerce_int96_timestamp_unit=INT96_UNIT
        ) as opened,
    ):
        yield opened


@dataclass(frozen=True)
class ParquetSample(DataFile):
    """Some rows of an Arrow IPC file, as a Parquet file in memory."""

    content: bytes = b""

    def open(self) -> BinaryIO:
        return io.BytesIO(self.content)


def sample_arrow(files: Sequence[DataFile], others: Sequence[DataFile] = ()) -> FileSample:
    """Sample rows that are spread over all files, as `sample_parquet` does of Parquet.

    others: files that should have the same columns; no rows of them are sampled. Raises DataError, which names the
    file, if a file cannot be read.
    """
    sizes = [count_arrow_rows(file) for file in files]
    if not sum(sizes):
        raise DataError("there are no rows", files[0].name, valid="files with rows")
    num_bytes = sum(file.num_bytes for file in files)
    step = max(-(-sum(sizes) // MAX_ROWS), -(-num_bytes // _MAX_BYTES))
    samples = [sample_as_parquet(file, step) for file in files]
    bare = [sample_as_parquet(file, None) for file in others]
    return replace(sample_parquet(samples, bare), num_rows=sum(sizes))


def count_arrow_rows(file: DataFile) -> int:
    """Count the rows of a file by its first column."""
    with open_arrow(file) as found:
        return sum(batch.num_rows for batch, _ in found.read(found.schema.names[:1]))


def sample_as_parquet(file: DataFile, step: int | None) -> ParquetSample:
    """Take one in `step` rows of a file, in pairs of neighbours; no rows if `step` is None.

    Columns of types that Parquet does not have are left out.
    """
    with open_arrow(file) as found:
        schema = pa.schema([(field.name, simplify_type(field.type)) for field in found.schema])
        places = [place for place, field in enumerate(schema) if _fits_parquet(field)]
        parts: list[pa.Table] = []
        position = 0
        for batch, _ in found.read() if step is not None else ():
            rows = np.arange(position, position + batch.num_rows) // 2
            position += batch.num_rows
            part = simplify_types(pa.Table.from_batches([batch])).select(places)
            parts.append(part.take(pa.array(np.flatnonzero(rows % step == 0))))
        table = pa.concat_tables(parts) if parts else pa.schema([schema.field(place) for place in places]).empty_table()
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="none", use_dictionary=False)
    content = sink.getvalue()
    return ParquetSample(file.name, len(content), 0, path_values=file.path_values, content=content)


def _fits_parquet(field: pa.Field) -> bool:
    try:
        parquet.write_table(pa.schema([field]).empty_table(), io.BytesIO())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, OSError):
        return False
    return True
