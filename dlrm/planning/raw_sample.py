"""A bounded sample of raw files: pieces of neighbouring rows, spread over the files, whatever their size."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from dlrm.config import DataConfig, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.sample.file_sample import spread_evenly
from dlrm.data.inspect.sample.parquet import count_arrow_rows, sample_as_parquet
from dlrm.data.inspect.sample.pieces import CountLines, TextPiece, read_pieces
from dlrm.data.raw.block import Parsed, RawTable
from dlrm.data.raw.data_file import DataFile, name_read_errors
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import cut_blocks
from dlrm.data.raw.text.csv_start import count_lines_before_rows
from dlrm.data.raw.text.lines import Lines, read_lines
from dlrm.data.raw.typed.parquet import ParquetRows, make_read_schema
from dlrm.data.raw.typed.typed_table import check_columns, parse_table
from dlrm.data.raw.values.columns import list_columns_to_read

MAX_ROWS, MAX_VALUES = 100_000, 5_000_000
"""Approximate numbers of rows and of values of a sample, whichever is reached first."""
_NUM_PIECES = 64
_MAX_FILES = 64
_DECODED_PER_WANTED = 10
"""Largest number of decoded rows of Parquet for each row of the sample, which is spread over them."""
_HEADER_BYTES = 64 << 10
"""Bytes that are read at a time to find the first line."""


@dataclass(frozen=True)
class RawSample:
    """Some good rows of the training files."""

    pieces: list[RawTable]
    """Runs of neighbouring rows; none is empty."""
    num_rows: int
    """Number of good and bad rows in the pieces."""
    num_rows_of_files: int
    """Number of rows of all files, or an estimate of it."""
    is_estimate: bool
    """Whether `num_rows_of_files` is estimated."""
    num_bytes: int
    """Bytes of all files together."""

    @property
    def is_whole(self) -> bool:
        """Whether the pieces have all rows of the files."""
        return not self.is_estimate and self.num_rows == self.num_rows_of_files


def count_rows(patterns: Sequence[str], field: str, config: DataConfig, data_roots: Sequence[str] | None) -> int:
    """Count the rows of raw files, or estimate them from their bytes. Raises DataError, which names `field`."""
    files = find_files(patterns, field, data_roots, Path())
    if config.format in ("parquet", "arrow"):
        chosen = _choose_files(files)
        if config.format == "arrow":
            num_rows = sum(map(count_arrow_rows, chosen))
        else:
            num_rows = sum(sum(_list_group_sizes(file, config.raw_schema)) for file in chosen)
        return _scale_rows(num_rows, chosen, files)
    return read_pieces(files, 1, partial(_count_lines_before_rows, config))[1]


def _count_lines_before_rows(config: DataConfig, lines: Lines) -> int:
    """Count the lines of a header, and of comments before it. lines: the first lines of a file."""
    schema = config.raw_schema
    if config.format != "csv":
        return 0
    return count_lines_before_rows(lines, schema.delimiter, has_header=schema.columns is None)


def read_sample(config: DataConfig, data_roots: Sequence[str] | None) -> RawSample:
    """Read a sample of the training rows, bad ones left out. `config.format` must be a raw format.

    data_roots: as in `find_files`. Raises DataError if files are missing or unreadable, or none of their rows is
    good.
    """
    files = find_files(config.train, "data.train", data_roots, Path())
    num_bytes = sum(file.num_bytes for file in files)
    if config.format == "parquet":
        pieces, num_rows_of_files, is_estimate = _read_parquet(files, config.raw_schema)
    elif config.format == "arrow":
        pieces, num_rows_of_files, is_estimate = _read_arrow(files, config.raw_schema)
    else:
        pieces, num_rows_of_files, is_estimate = _read_text(files, config)
    num_rows = sum(num_rows for num_rows, _ in pieces)
    tables = [parsed.table for _, parsed in pieces if parsed.table.num_rows]
    if not tables:
        # The first piece begins with the first row, so that its error has the right line.
        faults = [fault for _, parsed in pieces for fault in parsed.faults]
        raise faults[0] if faults else DataError("there are no rows", files[0].name, valid="files with rows")
    return RawSample(tables, num_rows, num_rows_of_files, is_estimate, num_bytes)


_Pieces = list[tuple[int, Parsed]]
"""Parsed pieces with their numbers of rows, bad ones included."""


def _read_text(files: Sequence[DataFile], config: DataConfig) -> tuple[_Pieces, int, bool]:
    count_lines = partial(_count_lines_before_rows, config)
    texts, num_rows, is_estimate = read_pieces(files, _choose_num_rows(config.raw_schema), count_lines)
    by_name = {file.name: file for file in files}
    headers = {name: _read_header(by_name[name], count_lines) for name in {text.file for text in texts}}
    pieces: _Pieces = []
    for text in texts:
        file = _TextFile.from_piece(text, headers[text.file], by_name[text.file])
        pieces += [(block.num_rows, block.parse(True)) for block in cut_blocks(config, [file])]
    return pieces, num_rows, is_estimate


def _read_header(file: DataFile, count_lines: CountLines) -> bytes:
    """Read the lines of a file before its first row."""
    lines = next(read_lines(file, _HEADER_BYTES))
    return lines.data[: len(lines.data) - len(lines.drop_first(count_lines(lines)).data)]


@dataclass(frozen=True)
class _TextFile(DataFile):
    """A piece of a text file, with the header of the file, that is read as a file of its own."""

    content: bytes = b""

    @classmethod
    def from_piece(cls, piece: TextPiece, header: bytes, file: DataFile) -> "_TextFile":
        content = header + piece.data
        return cls(file.name, len(content), 0, path_values=file.path_values, content=content)

    def open(self) -> BinaryIO:
        return io.BytesIO(self.content)


def _read_parquet(files: Sequence[DataFile], schema: SchemaConfig) -> tuple[_Pieces, int, bool]:
    chosen = _choose_files(files)
    columns = list_columns_to_read(schema, with_labels=True)
    groups: list[tuple[DataFile, int, int]] = []
    for file in chosen:
        groups += [
            (file, index, num_rows) for index, num_rows in enumerate(_list_group_sizes(file, schema)) if num_rows
        ]
    num_rows = sum(size for *_, size in groups)
    some = [groups[index] for index in spread_evenly(len(groups), _NUM_PIECES)] if groups else []
    num_wanted = _choose_num_rows(schema)
    pieces: _Pieces = []
    for file, index, size in some:
        wanted = min(-(-num_wanted // len(some)), size)
        tables = _read_group(file, index, wanted, -(-_NUM_PIECES // len(some)), size, columns)
        parse = partial(parse_table, first_row=1, source=file.name, schema=schema, with_labels=True, keep_going=True)
        pieces += [(table.num_rows, parse(table)) for table in tables]
    return pieces, _scale_rows(num_rows, chosen, files), len(chosen) < len(files)


def _read_arrow(files: Sequence[DataFile], schema: SchemaConfig) -> tuple[_Pieces, int, bool]:
    chosen = _choose_files(files)
    num_rows = sum(map(count_arrow_rows, chosen))
    step = max(1, -(-num_rows // _choose_num_rows(schema)))
    pieces, _, _ = _read_parquet([sample_as_parquet(file, step) for file in chosen], schema)
    return pieces, _scale_rows(num_rows, chosen, files), len(chosen) < len(files)


def _choose_files(files: Sequence[DataFile]) -> list[DataFile]:
    """Choose the Parquet files that are opened: all, or _MAX_FILES that are spread over them."""
    return [files[index] for index in spread_evenly(len(files), _MAX_FILES)]


def _scale_rows(num_rows: int, chosen: Sequence[DataFile], files: Sequence[DataFile]) -> int:
    """Estimate the rows of `files` from the `num_rows` of the `chosen` ones, with as many rows a byte."""
    return round(num_rows * sum(file.num_bytes for file in files) / sum(file.num_bytes for file in chosen))


def _list_group_sizes(file: DataFile, schema: SchemaConfig) -> list[int]:
    """List the numbers of rows of the row groups of a file, once its columns are checked. Raises DataError."""
    with name_read_errors(file, "Parquet"), file.open() as raw:
        opened = parquet.ParquetFile(raw, pre_buffer=False)
        rows = ParquetRows(opened, file)
        check_columns(make_read_schema(rows.columns), schema, file.name, with_labels=True)
        return [rows.count_rows(index) for index in range(opened.num_row_groups)]


def _choose_num_rows(schema: SchemaConfig) -> int:
    num_elements = sum(schema.list_lengths.values())
    num_columns = len(list_columns_to_read(schema, with_labels=True)) + num_elements
    return max(1, min(MAX_ROWS, MAX_VALUES // num_columns))


def _read_group(
    file: DataFile, index: int, num_wanted: int, num_pieces: int, num_rows: int, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield some `num_wanted` rows of a row group of `num_rows`, in pieces spread over it, or over its first part if
    the group is so large that reaching them would take long."""
    num_decoded = min(num_rows, _DECODED_PER_WANTED * num_wanted)
    piece_rows = -(-num_wanted // num_pieces)
    step = num_decoded // num_wanted
    with (
        name_read_errors(file, "Parquet"),
        file.open() as raw,
        parquet.ParquetFile(raw, buffer_size=_HEADER_BYTES, pre_buffer=False) as source,
    ):
        batches = ParquetRows(source, file).iter_batches(piece_rows, index, columns)
        for number, batch in enumerate(batches):
            if number * piece_rows >= num_decoded:
                return
            if number % step == 0:
                yield pa.Table.from_batches([batch])
