"""Vocabularies: they map the values of a categorical column to the rows of its table."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.data.random import random_bits, stream_key

_HASH_SEED = 0x7AB1E
"""Seed of the hash; fixed, so that a value has the same row in every run and in every model."""
_DIGEST_BYTES = 8

OUT_OF_VOCABULARY_ID, MISSING_ID = 0, 1
"""First two rows of the table of a counted vocabulary."""


class Vocabulary(Protocol):
    """Mapping of the values of one column to the rows of its table."""

    @property
    def num_ids(self) -> int:
        """Number of rows of the table."""
        ...

    @property
    def missing_id(self) -> int:
        """Table row of a missing value."""
        ...

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        """Return the table rows [n] of the values `distinct`: [n], Int64, Float64 or String, ascending, none
        missing."""
        ...


@dataclass(frozen=True)
class CountedVocabulary:
    """Vocabulary with one row for each frequent value, most frequent first, from row 2 on.

    Row 0 is for values that are rare or were never seen in training, row 1 for missing values. Values that later data
    adds follow after the existing ones, again the most frequent first.
    """

    distinct: pl.Series
    """[num_ids - 2] values of rows 2, 3, ...: Int64 or String."""
    counts: NDArray[np.int64]
    """[num_ids - 2] numbers of training rows that held each value when it was added."""
    missing_id: int = MISSING_ID

    @classmethod
    def build(cls, distinct: pl.Series, counts: NDArray[np.int64], min_count: int) -> "CountedVocabulary":
        """Build the vocabulary of the values that occur in at least `min_count` training rows.

        distinct: [n] distinct values, ascending; values of equal count keep this order. counts: [n] their counts.
        """
        return cls(distinct.clear(), np.empty(0, dtype=np.int64)).extend(distinct, counts, min_count)

    def extend(self, distinct: pl.Series, counts: NDArray[np.int64], min_count: int) -> "CountedVocabulary":
        """Return this vocabulary with rows appended for the new values that occur in at least `min_count` rows.

        distinct, counts: as in `build`. Existing rows do not change.
        """
        is_frequent = counts >= min_count
        distinct, counts = distinct.filter(pl.Series(is_frequent)), counts[is_frequent]
        is_new = self.encode(distinct) == OUT_OF_VOCABULARY_ID
        distinct, counts = distinct.filter(pl.Series(is_new)), counts[is_new]
        order = np.argsort(-counts, kind="stable")
        return CountedVocabulary(
            pl.concat([self.distinct, distinct.gather(order)]), np.concatenate([self.counts, counts[order]])
        )

    @property
    def num_ids(self) -> int:
        return len(self.distinct) + 2

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        if not len(self.distinct):
            return np.zeros(len(distinct), dtype=np.int64)
        return self._find_rows(distinct)

    @cached_property
    def _find_rows(self) -> Callable[[pl.Series], NDArray[np.int64]]:
        return (
            _make_text_lookup(self.distinct) if self.distinct.dtype == pl.String else _make_number_lookup(self.distinct)
        )


@dataclass(frozen=True)
class HashedVocabulary:
    """Vocabulary that hashes values to rows 1 to num_ids - 1; row 0 is for missing values. It needs no fitting."""

    num_ids: int
    key: int
    """Hash key of the column: values that collide in one column do not collide in another."""
    missing_id: int = 0

    @classmethod
    def for_column(cls, column: int, hash_size: int) -> "HashedVocabulary":
        """Make the vocabulary of categorical column number `column`, with a table of `hash_size` rows."""
        return cls(hash_size, stream_key(_HASH_SEED, column))

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        numbers = _hash_texts(distinct) if distinct.dtype == pl.String else distinct.to_numpy()
        bits = random_bits(self.key, np.ascontiguousarray(numbers))
        return (bits % np.uint64(self.num_ids - 1)).astype(np.int64) + 1


def _make_number_lookup(values: pl.Series) -> Callable[[pl.Series], NDArray[np.int64]]:
    values_by_row = values.to_numpy()
    order = np.argsort(values_by_row)
    ascending = values_by_row[order]

    def find_rows(distinct: pl.Series) -> NDArray[np.int64]:
        numbers = distinct.to_numpy()
        index = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
        return np.where(ascending[index] == numbers, order[index] + 2, OUT_OF_VOCABULARY_ID)

    return find_rows


def _make_text_lookup(values: pl.Series) -> Callable[[pl.Series], NDArray[np.int64]]:
    # An Enum keeps the hash table of its categories between casts.
    categories = pl.Enum(values)

    def find_rows(distinct: pl.Series) -> NDArray[np.int64]:
        positions = distinct.cast(categories, strict=False).to_physical().cast(pl.Int64)
        return (positions + 2).fill_null(OUT_OF_VOCABULARY_ID).to_numpy()

    return find_rows


def _hash_texts(texts: pl.Series) -> NDArray[np.int64]:
    """Hash every text to an int64 [n] that is the same on every machine and in every version."""
    digests = (hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype="<i8")
