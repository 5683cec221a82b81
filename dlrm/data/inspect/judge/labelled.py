"""The sampled rows with their labels, and their columns in the form in which they are judged."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.data.inspect.judge.prediction import FoldCounts
from sharding.counter_random import random_units, stream_key

_FOLDS_KEY = stream_key(0x1F01D5)
"""Random stream that divides the rows into two folds; fixed, so that the same files always give the same document."""
_MIN_CLASS_ROWS = 30
"""Least number of rows of each class in each fold from which predictions are measured."""
_ROWS_PER_RANGE = 1500
"""Rows of the files for each range. On 100,000 rows models with 64 ranges were better than those with 16 and 128, on
300,000 rows those with 256 better than those with 64."""
_MIN_RANGES, _MAX_RANGES = 16, 256
_MIN_ROWS_FOR_RANGES = 500
"""Least number of rows of the files from which numbers are divided into ranges."""


@dataclass(frozen=True)
class EncodedColumn:
    """The values of a column of n sampled rows, as codes into its distinct values."""

    name: str
    codes: NDArray[np.int64]
    """[n], indices into `distinct`; -1 is a missing value."""
    distinct: pl.Series
    """[k] distinct present values, in the order in which they first occur."""

    @classmethod
    def encode(cls, values: pl.Series) -> "EncodedColumn":
        """Encode a column of numbers, texts or times."""
        # Polars panics where the name of what it converts has a NUL.
        name = values.name.replace("\0", "")
        encoded = values.alias(name).to_arrow().dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(values.name, codes, pl.Series(name, encoded.dictionary, dtype=values.dtype))

    @cached_property
    def num_rows_of_value(self) -> NDArray[np.int64]:
        """[k], number of sampled rows with each distinct value."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.distinct))

    @property
    def num_distinct(self) -> int:
        return len(self.distinct)

    @property
    def num_present(self) -> int:
        return int(self.num_rows_of_value.sum())

    @property
    def missing_share(self) -> float:
        return 1.0 - self.num_present / max(len(self.codes), 1)

    @property
    def digest(self) -> bytes:
        """Digest that is equal for two columns if a value of one always occurs with the same value of the other."""
        return hashlib.blake2b(self.codes.tobytes()).digest()


@dataclass(frozen=True)
class LabelledRows:
    """The labels of n sampled rows, by which columns are judged."""

    labels: NDArray[np.bool_]
    """[n], whether the label is 1."""
    num_rows: int
    """Number of rows of the files, perhaps an estimate; at least n."""

    @cached_property
    def folds(self) -> NDArray[np.int64]:
        """[n], fold of each row, 0 or 1."""
        return (random_units(_FOLDS_KEY, np.arange(len(self.labels))) < 0.5).astype(np.int64)

    @cached_property
    def can_measure(self) -> bool:
        """Whether there are enough rows of both classes to measure how well a column predicts the label."""
        nothing = np.zeros(len(self.labels), dtype=np.int64)
        return FoldCounts.count(nothing, 1, self.labels, self.folds).has_both_classes(_MIN_CLASS_ROWS)

    def count(self, column: EncodedColumn) -> FoldCounts:
        """Count the rows of each distinct value of `column` by fold and label."""
        return FoldCounts.count(column.codes, column.num_distinct, self.labels, self.folds)

    def estimate_repeats(self, column: EncodedColumn) -> float:
        """Estimate in how many rows of the files the value of a row occurs, that row included.

        Each pair of sampled rows with the same value stands for as many more pairs as the files have.
        """
        num_sampled = column.num_present
        if num_sampled < 2:
            return 1.0
        num_rows = max(self.num_rows * num_sampled / len(self.labels), num_sampled)
        counts = column.num_rows_of_value.astype(np.float64)
        share_of_pairs = float((counts * (counts - 1)).sum()) / (num_sampled * (num_sampled - 1))
        return 1.0 + share_of_pairs * (num_rows - 1)

    @property
    def num_ranges(self) -> int | None:
        """Number of ranges into which numbers are divided, a power of two; None for too few rows."""
        if self.num_rows < _MIN_ROWS_FOR_RANGES:
            return None
        wanted = 2 ** round(np.log2(self.num_rows / _ROWS_PER_RANGE))
        return int(min(max(wanted, _MIN_RANGES), _MAX_RANGES))
