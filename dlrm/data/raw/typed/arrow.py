"""Reader of Arrow IPC files (Feather of version 2) and streams with a schema."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pyarrow import ipc

from dlrm.config import SchemaConfig
from dlrm.data.raw.block import Block
from dlrm.data.raw.data_file import DataFile, name_read_errors
from dlrm.data.raw.file_kinds import ARROW, ARROW_STREAM, START_BYTES, identify, remove_buffer
from dlrm.data.raw.typed.parquet import BLOCK_BYTES, MAX_BLOCK_ROWS, find_columns_to_read
from dlrm.data.raw.typed.typed_table import parse_table


def cut_arrow_blocks(
    file: DataFile,
    schema: SchemaConfig,
    block_rows: int = MAX_BLOCK_ROWS,
    block_bytes: int = BLOCK_BYTES,
    with_labels: bool = True,
) -> Iterator[Block]:
    """Cut `file` into blocks of at most `block_rows` rows and about `block_bytes`, at least one row.

    Small record batches are joined, and large ones are cut; one is in memory as a whole. Errors give a row's number as
    its line. Raises DataError if the file is not Arrow IPC, or does not have the columns of the schema.
    """
    with open_arrow(file) as found:
        columns = find_columns_to_read(file, found.schema, schema, with_labels)
        stored = [column.name for column in columns if column.stored_name is not None]
        stated = {column.name: column.value for column in columns if column.is_stated}
        first, place = 0, 0
        for table, end in _join_batches(found.read(stored), block_bytes):
            num_rows = max(1, min(block_rows, block_bytes * table.num_rows // max(table.nbytes, 1)))
            for start in range(0, table.num_rows, num_rows):
                piece = table.slice(start, num_rows)
                num_bytes = (end - place) * (start + piece.num_rows) // table.num_rows
                num_bytes -= (end - place) * start // table.num_rows
                for name, value in stated.items():
                    piece = piece.append_column(name, pa.repeat(value, piece.num_rows))
                parse = partial(
                    parse_table, piece, first + start + 1, file.name, schema, with_labels, stated=file.path_values
                )
                yield Block(file.name, piece.num_rows, num_bytes, parse)
            first, place = first + table.num_rows, end


class ArrowBatches:
    """Record batches of one Arrow IPC file or stream."""

    def __init__(self, source: pa.NativeFile, file: DataFile, is_stream: bool) -> None:
        self._source, self._file, self._is_stream = source, file, is_stream
        reader = ipc.open_stream(source) if is_stream else ipc.open_file(source)
        self.schema: pa.Schema = reader.schema

    def read(self, columns: Sequence[str] | None = None) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the batches, and the bytes of the file up to the end of each. columns: None for all."""
        names = self.schema.names
        included = None if columns is None else [names.index(name) for name in dict.fromkeys(columns)]
        options = ipc.IpcReadOptions(included_fields=included, use_threads=False)
        self._source.seek(0)
        if self._is_stream:
            for batch in ipc.open_stream(self._source, options=options):
                yield _check(batch), self._source.tell()
            return
        reader = ipc.open_file(self._source, options=options)
        for index in range(reader.num_record_batches):
            end = self._file.num_bytes * (index + 1) // reader.num_record_batches
            yield _check(reader.get_batch(index)), end


@contextmanager
def open_arrow(file: DataFile) -> Iterator[ArrowBatches]:
    """Open a file. Raises DataError if it is not Arrow IPC, or if Arrow finds inside the `with` that it is
    damaged."""
    with file.open() as opened:
        raw = remove_buffer(opened)
        kind = identify(raw.read(START_BYTES) or b"")
        if kind not in (ARROW, ARROW_STREAM):
            raise kind.make_error(file.name)
        raw.seek(0)
        with name_read_errors(file, "Arrow IPC"):
            yield ArrowBatches(pa.PythonFile(raw, mode="r"), file, kind is ARROW_STREAM)


def _check(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Check that a batch holds what its metadata says: Arrow does not, and damaged offsets would end the process."""
    batch.validate(full=True)
    return batch


def _join_batches(batches: Iterator[tuple[pa.RecordBatch, int]], block_bytes: int) -> Iterator[tuple[pa.Table, int]]:
    """Join batches to tables of about `block_bytes`, with the end of each in the file."""
    joined: list[pa.RecordBatch] = []
    num_bytes = last = 0
    for batch, end in batches:
        if joined and num_bytes + batch.nbytes > block_bytes:
            yield pa.Table.from_batches(joined), last
            joined, num_bytes = [], 0
        joined += [batch] if batch.num_rows else []
        num_bytes += batch.nbytes
        last = end
    if joined:
        yield pa.Table.from_batches(joined), last
