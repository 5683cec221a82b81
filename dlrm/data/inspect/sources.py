"""Rows to inspect from every kind of data."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from dlrm.config import DataConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.inspect.columns import Names
from dlrm.data.inspect.gather import GatheredRows, Gatherer, OnRows
from dlrm.data.open import open_data
from dlrm.data.raw.block import Block, Parsed
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import cut_blocks
from dlrm.data.raw.table import CategoricalValues, RawTable
from dlrm.data.rows import NumpyIds, RowSource
from dlrm.data.synthetic.criteo_shape import DENSE_NAMES

_BLOCK_ROWS, _BLOCK_BYTES = 1 << 16, 32 << 20
"""Rows and bytes that are read at a time, whichever is reached first."""


def gather(config: DataConfig, max_rows: int, on_rows: OnRows) -> GatheredRows:
    """Gather at most `max_rows` training rows of the data to inspect. Raises DataError."""
    if config.is_raw:
        files = find_files(config.train, "data.train", None, Path())
        schema = config.raw_schema
        names = Names.from_schema(schema)
        gatherer = Gatherer(names, max_rows, sum(file.num_bytes for file in files))
        return gatherer.gather(lambda: cut_blocks(config, files), on_rows)
    data = open_data(config, None, None)
    features = data.schema.features
    names = Names(
        data.encoders.dense_names if data.encoders else DENSE_NAMES,
        [feature.name for feature in features],
        [feature.num_ids for feature in features],
    )
    missing_ids = _get_missing_ids(data.encoders, len(features))
    gatherer = Gatherer(names, max_rows, data.train.num_rows)
    return gatherer.gather(lambda: _cut_encoded_blocks(data.train, missing_ids), on_rows)


def _get_missing_ids(encoders: Encoders | None, num_features: int) -> Sequence[int | None]:
    if encoders is None:
        return [None] * num_features
    return [vocabulary.missing_id for vocabulary in encoders.vocabularies]


def _cut_encoded_blocks(source: RowSource, missing_ids: Sequence[int | None]) -> Iterator[Block]:
    """Yield encoded rows in the form of raw rows: their categorical values are row numbers of tables."""
    block_rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // source.row_bytes))
    for start in range(0, source.num_rows, block_rows):
        num_rows = min(block_rows, source.num_rows - start)
        yield Block("", num_rows, num_rows, partial(_parse, source, start, num_rows, missing_ids))


def _parse(
    source: RowSource,
    start: int,
    num_rows: int,
    missing_ids: Sequence[int | None],
    keep_going: bool,  # noqa: ARG001, there are no bad rows
) -> Parsed:
    rows = source.read(np.arange(start, start + num_rows, dtype=np.int64))
    dense = [column.astype(np.float64) for column in rows.dense.T]
    is_multi_hot = [feature.is_multi_hot for feature in source.schema.features]
    return Parsed(RawTable(rows.labels, rows.weights, dense, _make_columns(rows.ids, is_multi_hot, missing_ids)))


def _make_columns(
    bags: NumpyIds, is_multi_hot: Sequence[bool], missing_ids: Sequence[int | None]
) -> list[CategoricalValues]:
    ends = np.cumsum(bags.lengths.sum(axis=1, dtype=np.int64))
    columns: list[CategoricalValues] = []
    # The part after the last end is empty.
    for index, ids in enumerate(np.split(bags.values, ends)[:-1]):
        distinct, codes = np.unique(ids, return_inverse=True)
        codes = codes.astype(np.int32)
        missing_id = missing_ids[index]
        if missing_id is not None and missing_id in distinct:
            missing = int(np.searchsorted(distinct, missing_id))
            codes = np.where(codes == missing, -1, codes - (codes > missing)).astype(np.int32)
            distinct = np.delete(distinct, missing)
        lengths = bags.lengths[index] if is_multi_hot[index] else None
        columns.append(CategoricalValues(codes, pl.Series(distinct), lengths))
    return columns
