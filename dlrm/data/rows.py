"""Rows of a click log, and where they come from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Feature:
    """A categorical feature: its ids are the rows 0 to num_ids - 1 of its table."""

    name: str
    num_ids: int
    is_multi_hot: bool = False
    """Whether a row may hold any number of ids; otherwise it holds one."""


@dataclass(frozen=True)
class DataSchema:
    """What every row holds beside its label: N dense features and F categorical ones."""

    num_dense: int
    features: tuple[Feature, ...]


@dataclass(frozen=True)
class Bags:
    """The ids of F features over n rows, as a KeyedJaggedTensor holds them: a bag for every feature and row."""

    values: NDArray[np.int64]
    """[sum of lengths], rows of the tables; feature by feature, row by row."""
    lengths: NDArray[np.int32]
    """[F, n], ids of each bag."""

    @classmethod
    def single(cls, ids: NDArray[np.int64]) -> "Bags":
        """Bags of one id each, from ids [F, n]."""
        return cls(ids.reshape(-1), np.ones(ids.shape, dtype=np.int32))

    def padded(self, num_empty: int) -> "Bags":
        """The same with `num_empty` rows of empty bags behind them."""
        if num_empty == 0:
            return self
        return Bags(self.values, np.pad(self.lengths, [(0, 0), (0, num_empty)]))

    def pieces(self, num_rows: int) -> "Iterator[Bags]":
        """The same in pieces of `num_rows` rows, of which the last may be short."""
        ends = np.cumsum(self.lengths, axis=None, dtype=np.int64).reshape(self.lengths.shape)
        for start in range(0, self.lengths.shape[1], num_rows):
            lengths = self.lengths[:, start : start + num_rows]
            firsts, lasts = ends[:, start] - lengths[:, 0], ends[:, start + lengths.shape[1] - 1]
            values = [self.values[first:last] for first, last in zip(firsts, lasts, strict=True)]
            yield Bags(np.concatenate([self.values[:0], *values]), lengths)


@dataclass(frozen=True)
class Rows:
    """n rows."""

    labels: NDArray[np.float32]
    """[n], 0 or 1."""
    dense: NDArray[np.float32]
    """[n, N], finite."""
    bags: Bags
    weights: NDArray[np.float32] | None = None
    """[n], how much each counts, at least 0; None: all the same."""

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    @property
    def ids(self) -> NDArray[np.int64]:
        """[F, n], where every bag holds one id; ValueError where one does not."""
        return self.bags.values.reshape(self.bags.lengths.shape)

    def pieces(self, num_rows: int) -> "Iterator[Rows]":
        """The same in pieces of `num_rows` rows, of which the last may be short."""
        starts = range(0, self.num_rows, num_rows)
        for start, bags in zip(starts, self.bags.pieces(num_rows), strict=True):
            piece = slice(start, start + num_rows)
            weights = None if self.weights is None else self.weights[piece]
            yield Rows(self.labels[piece], self.dense[piece], bags, weights)


@dataclass(frozen=True)
class Runs:
    """Rows [starts[i], stops[i]) of a source, ascending."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


class RowSource(Protocol):
    """Rows that can be read in any order."""

    @property
    def num_rows(self) -> int: ...

    @property
    def schema(self) -> DataSchema: ...

    @property
    def row_bytes(self) -> int:
        """Bytes of a row where it is stored, on average."""
        ...

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        """The rows of these numbers [n], each within 0 to num_rows - 1, in this order; repeats are fine."""
        ...

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """A hint: rows of `now` are read from now on, in any order, then those of `soon`; others not for a while."""
        ...

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """The probabilities [n] that the labels were drawn with; None where nobody knows them."""
        ...


@dataclass(frozen=True)
class Subset:
    """Some rows of a source, numbered anew from 0."""

    source: RowSource
    row_numbers: NDArray[np.int64]
    """[num_rows], numbers in `source`."""

    @property
    def num_rows(self) -> int:
        return len(self.row_numbers)

    @property
    def schema(self) -> DataSchema:
        return self.source.schema

    @property
    def row_bytes(self) -> int:
        return self.source.row_bytes

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        return self.source.read(self.row_numbers[row_numbers])

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """Nothing: where these rows lie in `source` nobody has looked."""

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float64] | None:
        return self.source.best_probabilities(self.row_numbers[row_numbers])
