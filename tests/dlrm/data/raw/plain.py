"""Tables as plain Python rows, to compare with."""

import gzip
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from dlrm.config import DataConfig
from dlrm.data.raw.block import Block, CategoricalValues, RawTable
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import cut_blocks

Value = int | str | None


class Row(NamedTuple):
    """One row; None is missing."""

    label: float
    weight: float | None
    dense: tuple[float | None, ...]
    categorical: tuple[Value | tuple[Value, ...], ...]


def tables_of(config: DataConfig, files: Sequence[DataFile]) -> Iterator[RawTable]:
    """The rows of all files, in order, a block at a time."""
    for block in cut_blocks(config, files):
        yield block.parse(False).table


def plain_rows(table: RawTable) -> list[Row]:
    dense = [[None if np.isnan(value) else float(value) for value in column] for column in table.dense]
    categorical = [_plain_column(column) for column in table.categorical]
    weights = [None] * table.num_rows if table.weights is None else table.weights.tolist()
    return [
        Row(float(label), weight, tuple(column[row] for column in dense), tuple(column[row] for column in categorical))
        for row, (label, weight) in enumerate(zip(table.labels, weights, strict=True))
    ]


def _plain_column(column: CategoricalValues) -> list[Value] | list[tuple[Value, ...]]:
    check_distinct(column)
    known = [*column.distinct.to_list(), None]
    values = [known[code] for code in column.codes]
    if column.lengths is None:
        return values
    ends = np.cumsum(column.lengths).tolist()
    assert len(values) == (ends[-1] if ends else 0)
    return [tuple(values[end - length : end]) for end, length in zip(ends, column.lengths.tolist(), strict=True)]


def check_distinct(column: CategoricalValues) -> None:
    """What every column promises: distinct values ascending, every one of them used."""
    assert column.codes.dtype == np.int32
    assert column.distinct.dtype in (pl.Int64, pl.String)
    assert column.distinct.null_count() == 0
    values = column.distinct.to_list()
    assert values == sorted(set(values))
    assert set(column.codes.tolist()) - {-1} == set(range(len(values)))


def rows_of(blocks: Iterable[Block]) -> list[Row]:
    """All rows; raises DataError at the first bad one."""
    rows: list[Row] = []
    for block in blocks:
        parsed = block.parse(False)
        assert parsed.good is None
        assert not parsed.faults
        assert parsed.table.num_rows == block.num_rows
        rows += plain_rows(parsed.table)
    return rows


def good_rows_of(blocks: Iterable[Block]) -> tuple[list[Row], list[bool]]:
    """The good rows, and which rows of all are good."""
    rows: list[Row] = []
    good: list[bool] = []
    for block in blocks:
        parsed = block.parse(True)
        mask = np.ones(block.num_rows, dtype=np.bool_) if parsed.good is None else parsed.good
        assert mask.sum() == parsed.table.num_rows
        rows += plain_rows(parsed.table)
        good += mask.tolist()
    return rows, good


def found(path: Path) -> DataFile:
    (file,) = find_files([str(path)], "data.train", None, Path("/"))
    return file


COMPRESSIONS = ("plain", "gzip", "gzip members", "zstd")


def compressed(data: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(data)
    if how == "gzip members":
        half = len(data) // 2
        return gzip.compress(data[:half]) + gzip.compress(data[half:])
    if how == "zstd":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()
    return data
