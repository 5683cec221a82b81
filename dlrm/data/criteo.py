"""Criteo TSV: label, 13 integers, 26 categories of up to 8 hexadecimal digits, tab-separated, blank = missing.

The rows are held in memory, about 160 bytes each: float32 dense values and int32 ids. Opening them peaks at about 400.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from dlrm.config import VocabularyConfig
from dlrm.data.criteo_fault import first_fault
from dlrm.data.criteo_shape import COLUMN_NAMES, DENSE_NAMES, FEATURE_NAMES, NUM_DENSE, delivered_dense
from dlrm.data.errors import DataError
from dlrm.data.memory import MemoryRows
from dlrm.data.rows import DataSchema, Feature
from dlrm.data.vocabulary import CountedVocabulary, Vocabularies

_BLOCK_BYTES = 1 << 23
_TYPES = {name: pa.string() if name in FEATURE_NAMES else pa.int64() for name in COLUMN_NAMES}


class _BadRowsError(Exception):
    """Some row of a block is at fault."""


@dataclass(frozen=True)
class CriteoRows:
    """Rows as the files hold them, the categories not yet rows of tables."""

    labels: NDArray[np.float32]
    """[n]."""
    dense: NDArray[np.float32]
    """[n, 13], as delivered."""
    categories: list[pl.Series]
    """26 of n 32-bit values, null where missing."""

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    def vocabularies(self, config: VocabularyConfig, training_rows: NDArray[np.int64]) -> Vocabularies:
        """The vocabularies of these rows; only those of the numbers `training_rows` are counted."""
        if config.hash_size is not None:
            return Vocabularies.hashed(len(self.categories), config.hash_size)
        features: list[CountedVocabulary] = []
        for column in self.categories:
            values, present = _values(column)
            features.append(CountedVocabulary.build(values[training_rows], present[training_rows], config.min_count))
        return Vocabularies(features)

    def encode(self, vocabularies: Vocabularies) -> MemoryRows:
        """The same rows with rows of tables for categories."""
        ids = np.empty((self.num_rows, len(FEATURE_NAMES)), dtype=np.int32)
        features: list[Feature] = []
        for number, name in enumerate(FEATURE_NAMES):
            vocabulary = vocabularies.features[number]
            ids[:, number] = vocabulary.encode(*_values(self.categories[number]))
            features.append(Feature(name, vocabulary.num_ids))
        return MemoryRows(DataSchema(NUM_DENSE, tuple(features)), self.labels, self.dense, ids)


def read_criteo(paths: Sequence[Path]) -> CriteoRows:
    """All rows of the files, in order. Raises DataError naming the first line at fault and its field."""
    blocks = [block for path in paths for block in _blocks(path)]
    return CriteoRows(
        labels=np.concatenate([block.labels for block in blocks]),
        dense=np.concatenate([block.dense for block in blocks]),
        categories=[pl.concat(parts) for parts in zip(*(block.categories for block in blocks), strict=True)],
    )


def _blocks(path: Path) -> Iterator[CriteoRows]:
    try:
        # An open file rather than a path: Arrow would decompress by the name's ending.
        with path.open("rb") as file, _open_csv(file) as reader:
            for batch in reader:
                yield _converted(batch)
    except (pa.ArrowInvalid, _BadRowsError) as error:
        raise first_fault(path) or DataError(f"not readable: {error}", path, valid="Criteo TSV") from None
    except OSError as error:
        raise DataError(f"not readable: {error}", path, valid="a file that may be read") from None


def _open_csv(file: object) -> csv.CSVStreamingReader:
    return csv.open_csv(
        file,
        read_options=csv.ReadOptions(column_names=COLUMN_NAMES, block_size=_BLOCK_BYTES),
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(column_types=_TYPES, null_values=[""], strings_can_be_null=True),
    )


def _converted(batch: pa.RecordBatch) -> CriteoRows:
    labels = _numbers(batch, "label")
    if not np.all((labels == 0) | (labels == 1)):
        raise _BadRowsError("a label is not 0 or 1")
    dense = np.empty((batch.num_rows, NUM_DENSE), dtype=np.float32)
    for number, name in enumerate(DENSE_NAMES):
        dense[:, number] = delivered_dense(_numbers(batch, name))
    categories = [_category(batch, name) for name in FEATURE_NAMES]
    return CriteoRows(labels.astype(np.float32), dense, categories)


def _numbers(batch: pa.RecordBatch, name: str) -> NDArray[np.float64]:
    """A column of integers, NaN where blank."""
    return batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)


def _category(batch: pa.RecordBatch, name: str) -> pl.Series:
    text = pl.Series(name, batch.column(name))
    values = text.str.to_integer(base=16, dtype=pl.UInt32, strict=False)
    # Polars takes signs and leading zeros without end.
    is_odd = text.str.contains_any(["+", "-"]) | (text.str.len_bytes() > 8)
    if values.null_count() != text.null_count() or is_odd.any():
        raise _BadRowsError(f"a value of {name} is not a hexadecimal id")
    return values


def _values(column: pl.Series) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Values [n], and where they are present [n]."""
    return column.fill_null(0).to_numpy(), column.is_not_null().to_numpy()
