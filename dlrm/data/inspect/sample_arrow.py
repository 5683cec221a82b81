"""Sampling of the rows of Arrow IPC files."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dlrm.data.errors import DataError
from dlrm.data.inspect.sample import MAX_ROWS, FileSample
from dlrm.data.inspect.sample_parquet import sample_parquet
from dlrm.data.raw.arrow import open_arrow
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.typed import simplify_type, simplify_types

_MAX_BYTES = 256 << 20
"""Approximate limit on the bytes of the sampled rows: fewer are taken where rows are long."""


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
