"""The vocabularies: how the values of a categorical column become rows of its table."""

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
"""Fixed: a value has the same row in every run and in every model."""
_DIGEST_BYTES = 8

OUT_OF_VOCABULARY_ID, MISSING_ID = 0, 1
"""The first rows of a counted table."""


class Vocabulary(Protocol):
    """How the values of one column become rows of its table."""

    @property
    def num_ids(self) -> int:
        """Rows of the table."""
        ...

    @property
    def missing_id(self) -> int:
        """The row of a missing value."""
        ...

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        """Table rows [n] of the values `distinct` [n], ascending and none missing: Int64 or String."""
        ...


@dataclass(frozen=True)
class CountedVocabulary:
    """Row 0: rare or never seen in training; row 1: missing; then the values, the most frequent first.

    Values that later data have added follow in the same way, behind the ones before.
    """

    distinct: pl.Series
    """[num_ids - 2], of the rows 2, 3 and so on: Int64 or String."""
    counts: NDArray[np.int64]
    """[num_ids - 2], training rows that held each value, when it was added."""
    missing_id: int = MISSING_ID

    @classmethod
    def build(cls, distinct: pl.Series, counts: NDArray[np.int64], min_count: int) -> "CountedVocabulary":
        """Of the distinct values of the training rows, ascending; equal counts keep that order."""
        return cls(distinct.clear(), np.empty(0, dtype=np.int64)).extended(distinct, counts, min_count)

    def extended(self, distinct: pl.Series, counts: NDArray[np.int64], min_count: int) -> "CountedVocabulary":
        """The same rows, and behind them those of new values, ascending, that occur `min_count` times."""
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
        return self._place(distinct)

    @cached_property
    def _place(self) -> Callable[[pl.Series], NDArray[np.int64]]:
        return (
            _places_of_texts(self.distinct) if self.distinct.dtype == pl.String else _places_of_numbers(self.distinct)
        )


@dataclass(frozen=True)
class HashedVocabulary:
    """Row 0: missing; every value has one of the other rows, by a hash. Needs no training rows to build."""

    num_ids: int
    key: int
    """Of the column: values that meet in one table do not meet in another."""
    missing_id: int = 0

    @classmethod
    def of_column(cls, column: int, hash_size: int) -> "HashedVocabulary":
        """column: its place among the categorical ones."""
        return cls(hash_size, stream_key(_HASH_SEED, column))

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        numbers = _digests(distinct) if distinct.dtype == pl.String else distinct.to_numpy()
        bits = random_bits(self.key, np.ascontiguousarray(numbers))
        return (bits % np.uint64(self.num_ids - 1)).astype(np.int64) + 1


def _places_of_numbers(known: pl.Series) -> Callable[[pl.Series], NDArray[np.int64]]:
    values = known.to_numpy()
    order = np.argsort(values)
    ascending = values[order]

    def place(distinct: pl.Series) -> NDArray[np.int64]:
        wanted = distinct.to_numpy()
        at = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
        return np.where(ascending[at] == wanted, order[at] + 2, OUT_OF_VOCABULARY_ID)

    return place


def _places_of_texts(known: pl.Series) -> Callable[[pl.Series], NDArray[np.int64]]:
    # An Enum keeps the hash table of its categories from one cast to the next.
    kind = pl.Enum(known)

    def place(distinct: pl.Series) -> NDArray[np.int64]:
        places = distinct.cast(kind, strict=False).to_physical().cast(pl.Int64)
        return (places + 2).fill_null(OUT_OF_VOCABULARY_ID).to_numpy()

    return place


def _digests(texts: pl.Series) -> NDArray[np.int64]:
    """A hash [n] of every text that is the same on every machine and in every version."""
    digests = (hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype="<i8")
