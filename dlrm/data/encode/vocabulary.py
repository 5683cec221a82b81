"""Vocabularies: they map the values of a categorical column to the rows of its table."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from dlrm.config.data import count_shared_rows
from dlrm.config.schema import TIME_PART_VALUES, TimePart
from dlrm.data.raw.values.distinct import round_to_float32
from sharding.counter_random import random_bits, stream_key

_HASH_SEED = 0x7AB1E
"""Seed of the hash; fixed, so that a value has the same row in every run and in every model."""
_DIGEST_BYTES = 8

OUT_OF_VOCABULARY_ID, MISSING_ID = 0, 1
"""First two rows of the table of a counted vocabulary."""


@dataclass(frozen=True)
class CountedVocabulary:
    """Vocabulary with one row for each frequent value, most frequent first, from row 2 on.

    Row 0 is for values that are rare or were never seen in training, row 1 for missing values. Values that later data
    adds follow after the existing ones, again the most frequent first. With remainders these are no rows but numbers,
    and number i has the rows i mod m and m + i // m, whose embeddings are added up (Shi et al. 2020, arXiv 1909.02107,
    section 3.2).
    """

    distinct: pl.Series
    """[n] values of rows 2, 3, ...: Int64 or String."""
    counts: NDArray[np.int64]
    """[n] numbers of training rows that held each value when it was added."""
    num_remainders: int | None = None
    """Number m of remainders; None if every value has a row of its own."""

    @classmethod
    def build(
        cls, distinct: pl.Series, counts: NDArray[np.int64], min_count: int, num_remainders: int | None = None
    ) -> "CountedVocabulary":
        """Build the vocabulary of the values that occur in at least `min_count` training rows.

        distinct: [n] distinct values, ascending; values of equal count keep this order. counts: [n] their counts.
        num_remainders: used however few values there are, since later data may add many.
        """
        empty = cls(distinct.clear(), np.empty(0, dtype=np.int64), num_remainders)
        return empty.extend(distinct, counts, min_count)

    def extend(self, distinct: pl.Series, counts: NDArray[np.int64], min_count: int) -> "CountedVocabulary":
        """Return this vocabulary with rows appended for the new values that occur in at least `min_count` rows.

        distinct, counts: as in `build`. Existing rows do not change.
        """
        is_frequent = counts >= min_count
        distinct, counts = distinct.filter(pl.Series(is_frequent)), counts[is_frequent]
        is_new = self._number(distinct) == OUT_OF_VOCABULARY_ID
        distinct, counts = distinct.filter(pl.Series(is_new)), counts[is_new]
        order = np.argsort(-counts, kind="stable")
        return CountedVocabulary(
            pl.concat([self.distinct, distinct.gather(order)]),
            np.concatenate([self.counts, counts[order]]),
            self.num_remainders,
        )

    @property
    def num_ids(self) -> int:
        return count_shared_rows(len(self.distinct) + 2, self.num_remainders)

    @property
    def missing_ids(self) -> tuple[int, ...]:
        return tuple(self._split(np.array([MISSING_ID])).ravel().tolist())

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        return self._split(self._number(distinct))

    def _split(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        m = self.num_remainders
        return numbers if m is None else np.stack([numbers % m, m + numbers // m], axis=1)

    def _number(self, distinct: pl.Series) -> NDArray[np.int64]:
        if not len(self.distinct):
            return np.zeros(len(distinct), dtype=np.int64)
        return self._find_rows(distinct)

    @cached_property
    def _find_rows(self) -> Callable[[pl.Series], NDArray[np.int64]]:
        return (
            _make_text_lookup(self.distinct) if self.distinct.dtype == pl.String else _make_number_lookup(self.distinct)
        )


@dataclass(frozen=True)
class DynamicVocabulary:
    """Map of a column whose ids come and go, as it is at the end of its rows. Rows 0 and 1 as in a counted vocabulary.

    It also has the values that wait for a row, so that a later log goes on from here.
    """

    values: pl.Series
    """[n] Int64 or String."""
    rows: NDArray[np.int64]
    """[n] table row of each value; -1 if it waits for one."""
    counts: NDArray[np.int64]
    """[n] numbers of training rows that held each value since it was known."""
    ages: NDArray[np.int64]
    """[n] numbers of windows since the last one with each value: 1 in the last window."""
    num_ids: int
    """Number of rows of the table."""
    num_used: int
    """Number of rows that any value has had, rows 0 and 1 included."""
    window_rows: int
    """Number of training rows of a window."""
    base: str | None = None
    """Checksum of the map that this one went on from; None if it began without one."""
    window_times: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """[k] times of the last windows, the newest last, as far back as the oldest value, and at least one; empty if
    values live by rows."""
    missing_ids: ClassVar[tuple[int]] = (MISSING_ID,)

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        return self._rows_of_places[self._owners.encode(distinct)]

    def compute_checksum(self) -> str:
        digest = hashlib.sha256("\0".join(map(str, self.values.to_list())).encode())
        for numbers in (self.rows, self.counts, self.ages):
            digest.update(numbers.astype("<i8").tobytes())
        digest.update(self.window_times.astype("<f8").tobytes())
        return digest.hexdigest()

    @cached_property
    def _owners(self) -> CountedVocabulary:
        has_row = self.rows >= 0
        return CountedVocabulary(self.values.filter(pl.Series(has_row)), self.counts[has_row])

    @cached_property
    def _rows_of_places(self) -> NDArray[np.int64]:
        return np.concatenate([[OUT_OF_VOCABULARY_ID, MISSING_ID], self.rows[self.rows >= 0]])


class _Fixed(BaseModel):
    """Vocabulary that is saved as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HashedVocabulary(_Fixed):
    """Vocabulary that hashes values. It needs no fitting.

    With k hashes a value has k rows of the table, whose embeddings are pooled: two values with one row in common mostly
    differ in another (Svenstrup et al. 2017, arXiv 1709.03933, with weights of 1). The first k rows are for missing
    values.
    """

    kind: Literal["hashed"] = "hashed"
    num_ids: int
    key: int
    """Hash key of the column: values that collide in one column do not collide in another."""
    num_hashes: int = 1
    """Number k of rows of a value."""

    @classmethod
    def for_column(cls, column: int, hash_size: int, num_hashes: int = 1) -> "HashedVocabulary":
        """Make the vocabulary of categorical column number `column`, with a table of `hash_size` rows."""
        return cls(num_ids=hash_size, key=stream_key(_HASH_SEED, column), num_hashes=num_hashes)

    @property
    def missing_ids(self) -> tuple[int, ...]:
        return tuple(range(self.num_hashes))

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        numbers = _hash_texts(distinct) if distinct.dtype == pl.String else distinct.to_numpy()
        first = random_bits(self.key, np.ascontiguousarray(numbers))
        if self.num_hashes == 1:
            return self._find_rows(first)
        others = [
            random_bits(stream_key(self.key, number), first.view(np.int64)) for number in range(1, self.num_hashes)
        ]
        return np.stack([self._find_rows(bits) for bits in (first, *others)], axis=1)

    def _find_rows(self, bits: NDArray[np.uint64]) -> NDArray[np.int64]:
        k = self.num_hashes
        return (bits % np.uint64(self.num_ids - k)).astype(np.int64) + k


class RangeVocabulary(_Fixed):
    """Vocabulary with one row for each range of numbers, ascending, from row 1 on; row 0 is for missing values.

    Numbers below or above all numbers of the training rows belong to the first or the last range.
    """

    kind: Literal["ranges"] = "ranges"
    edges: tuple[float, ...]
    """Least number of each range but the first, ascending."""
    missing_ids: ClassVar[tuple[int]] = (0,)

    @classmethod
    def divide(cls, values: NDArray[np.float64], counts: NDArray[np.int64], num_ranges: int) -> "RangeVocabulary":
        """Divide numbers into at most `num_ranges` ranges with about equally many occurrences each.

        values: [n] distinct numbers, ascending. counts: [n] their numbers of occurrences. If there are no more numbers
        than ranges, each number has a range of its own.
        """
        starts = divide_evenly(counts, min(num_ranges, len(values)))
        return cls(edges=tuple(values[starts[1:]].tolist()))

    @classmethod
    def for_time_part(cls, part: TimePart) -> "RangeVocabulary":
        """Make the vocabulary of a part of times, with a row for each value."""
        return cls(edges=tuple(float(value) for value in TIME_PART_VALUES[part][1:]))

    @property
    def num_ids(self) -> int:
        return len(self.edges) + 2

    @property
    def names(self) -> list[str]:
        """Names of the ranges, such as `[3, 7)`."""
        texts = [f"{edge:.9g}" for edge in self.edges]
        if not texts:
            return ["any"]
        between = [f"[{low}, {high})" for low, high in pairwise(texts)]
        return [f"< {texts[0]}", *between, f">= {texts[-1]}"]

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        # Edges of earlier versions are not rounded, as the numbers are.
        edges = round_to_float32(np.array(self.edges))
        return np.searchsorted(edges, distinct.to_numpy(), side="right") + 1


Vocabulary = CountedVocabulary | DynamicVocabulary | HashedVocabulary | RangeVocabulary
"""Mapping of the values of one column to the `num_ids` rows of its table.

`missing_ids` are the k rows of a missing value, mostly one, and `encode` returns the rows [n], or [n, k] if k > 1, of
the values `distinct` [n], which are Int64, Float64 or String, ascending, none missing.
"""


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


def divide_evenly(weights: NDArray[np.int64], num_groups: int) -> list[int]:
    """Divide items into consecutive groups of about equal weight; return the index at which each group begins.

    weights: [n], n at least `num_groups`; each group has at least one item. The groups are chosen from the first to the
    last. A heavy item is a group of its own, or with a few light items before it; each other group is as near as
    possible to an equal share of the light items that are left.
    """
    is_heavy = _find_heavy_items(weights, num_groups)
    heavy_items = np.flatnonzero(is_heavy).tolist()
    # In float64, since a search for a fraction would otherwise convert all numbers each time.
    ends = np.cumsum(weights, dtype=np.float64)
    light_ends = np.cumsum(np.where(is_heavy, 0, weights), dtype=np.float64)
    starts: list[int] = []
    start = num_heavy = 0
    done = done_light = 0.0
    for num_left in range(num_groups, 0, -1):
        starts.append(start)
        next_heavy = heavy_items[num_heavy] if num_heavy < len(heavy_items) else len(weights)
        num_light = num_left - (len(heavy_items) - num_heavy)
        share = (light_ends[-1] - done_light) / num_light if num_light > 0 else np.inf
        last = min(int(np.searchsorted(ends, done + share)), next_heavy)
        before = ends[last - 1] - done if last > start else 0.0
        # Light items join the heavy one after them only where they are less than half a share.
        is_shorter_better = before >= share / 2 if last == next_heavy else share - before < ends[last] - done - share
        if last > start and is_shorter_better:
            last -= 1
        last = min(last, len(weights) - num_left)
        num_heavy += last == next_heavy
        start, done, done_light = last + 1, float(ends[last]), float(light_ends[last])
    return starts


def _find_heavy_items(weights: NDArray[np.int64], num_groups: int) -> NDArray[np.bool_]:
    """Return a mask [n] of the items that weigh more than an equal share of the light ones."""
    is_heavy = np.zeros(len(weights), dtype=np.bool_)
    while True:
        light = weights[~is_heavy].sum()
        found = weights * (num_groups - np.count_nonzero(is_heavy)) > light
        if np.array_equal(found | is_heavy, is_heavy):
            return is_heavy
        is_heavy |= found
