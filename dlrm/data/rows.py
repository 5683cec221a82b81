"""Rows of a click log, and where they come from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sharding.jagged import JaggedIds


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


NumpyIds = JaggedIds[NDArray[Any]]
"""Ids of rows as arrays of numpy."""


def single_ids(matrix: NDArray[np.int64]) -> NumpyIds:
    """Make bags of one id each from ids [F, n]."""
    return JaggedIds(matrix.reshape(-1), np.ones(matrix.shape, dtype=np.int32))


def pad_with_empty_bags(ids: NumpyIds, num_empty: int) -> NumpyIds:
    """Add `num_empty` samples of empty bags behind the others; nothing is copied where there are none to add."""
    if num_empty == 0:
        return ids
    return JaggedIds(ids.values, np.pad(ids.lengths, [(0, 0), (0, num_empty)]))


def split_ids(ids: NumpyIds, num_samples: int) -> Iterator[NumpyIds]:
    """Cut ids into pieces of `num_samples` samples, of which the last may be short."""
    ends = np.cumsum(ids.lengths, axis=None, dtype=np.int64).reshape(ids.lengths.shape)
    for start in range(0, ids.num_samples, num_samples):
        lengths = ids.lengths[:, start : start + num_samples]
        first, last = ends[:, start] - lengths[:, 0], ends[:, start + lengths.shape[1] - 1]
        values = [ids.values[begin:end] for begin, end in zip(first, last, strict=True)]
        yield JaggedIds(np.concatenate([ids.values[:0], *values]), lengths)


@dataclass(frozen=True)
class Rows:
    """n rows."""

    labels: NDArray[np.float32]
    """[n], 0 or 1."""
    dense: NDArray[np.float32]
    """[n, N], finite."""
    ids: NumpyIds
    weights: NDArray[np.float32] | None = None
    """[n], how much each counts, at least 0; None: all the same."""

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    @property
    def id_matrix(self) -> NDArray[np.int64]:
        """[F, n], where every bag holds one id; ValueError where one does not."""
        return self.ids.values.reshape(self.ids.lengths.shape)

    def pieces(self, num_rows: int) -> "Iterator[Rows]":
        """The same in pieces of `num_rows` rows, of which the last may be short."""
        starts = range(0, self.num_rows, num_rows)
        for start, ids in zip(starts, split_ids(self.ids, num_rows), strict=True):
            piece = slice(start, start + num_rows)
            weights = None if self.weights is None else self.weights[piece]
            yield Rows(self.labels[piece], self.dense[piece], ids, weights)


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
