"""Rows of a click log, and the interface of their sources."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sharding.jagged import JaggedIds, SequenceShape


@dataclass(frozen=True)
class Feature:
    """A categorical feature: its ids are the row numbers 0 to num_ids - 1 of its table."""

    name: str
    num_ids: int
    is_multi_hot: bool = False
    """Whether a row may hold any number of values; otherwise it holds one."""
    ids_per_value: int = 1
    """Number of ids that one value has; their embeddings are pooled."""
    sequence: SequenceShape | None = None
    """Shape of the lists if their order counts: the feature then has the table of its target, and none of its own."""

    @property
    def has_bags(self) -> bool:
        """Whether a row may hold another number of ids than one."""
        return self.is_multi_hot or self.ids_per_value > 1


@dataclass(frozen=True)
class DataSchema:
    """Features of every row, besides its label: N dense and F categorical ones."""

    num_dense: int
    features: tuple[Feature, ...]
    """Features in the order of the ids; those with sequences are the last ones."""

    @property
    def tables(self) -> tuple[Feature, ...]:
        """Features that have a table: all but the sequences."""
        return tuple(feature for feature in self.features if feature.sequence is None)

    @property
    def sequences(self) -> tuple[SequenceShape, ...]:
        """Shapes of the sequences, in the order of their features."""
        return tuple(feature.sequence for feature in self.features if feature.sequence is not None)


NumpyIds = JaggedIds[NDArray[Any]]
"""Ids of rows as numpy arrays."""


def make_single_id_bags(matrix: NDArray[np.int64]) -> NumpyIds:
    """Make bags of one id each from ids [F, n]."""
    return JaggedIds(matrix.reshape(-1), np.ones(matrix.shape, dtype=np.int32))


def pad_with_empty_bags(ids: NumpyIds, num_empty: int) -> NumpyIds:
    """Append `num_empty` samples with empty bags; return `ids` itself, uncopied, if there are none to add."""
    if num_empty == 0:
        return ids
    return JaggedIds(ids.values, np.pad(ids.lengths, [(0, 0), (0, num_empty)]))


def split_ids(ids: NumpyIds, num_samples: int) -> Iterator[NumpyIds]:
    """Yield the ids in pieces of `num_samples` samples; the last piece may be shorter."""
    ends = np.cumsum(ids.lengths, axis=None, dtype=np.int64).reshape(ids.lengths.shape)
    for start in range(0, ids.lengths.shape[1], num_samples):
        lengths = ids.lengths[:, start : start + num_samples]
        first, last = ends[:, start] - lengths[:, 0], ends[:, start + lengths.shape[1] - 1]
        values = [ids.values[begin:end] for begin, end in zip(first, last, strict=True)]
        yield JaggedIds(np.concatenate([ids.values[:0], *values]), lengths)


@dataclass(frozen=True)
class Rows:
    """n rows, encoded as a model reads them."""

    labels: NDArray[np.float32]
    """[n] labels, 0 or 1."""
    dense: NDArray[np.float32]
    """[n, N] dense features, finite."""
    ids: NumpyIds
    weights: NDArray[np.float32] | None = None
    """[n] weights of the rows, at least 0; None if all rows have the same weight."""
    further_labels: NDArray[np.float32] | None = None
    """[n, K] labels of further tasks, NaN where missing; None if there are none."""

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    @property
    def all_labels(self) -> NDArray[np.float32]:
        """Labels [n], or [n, 1 + K] with the labels of further tasks."""
        return self.labels if self.further_labels is None else np.column_stack([self.labels, self.further_labels])

    @property
    def id_matrix(self) -> NDArray[np.int64]:
        """[F, n] ids. Raises ValueError if a bag does not hold exactly one id."""
        return self.ids.values.reshape(self.ids.lengths.shape)

    def split(self, num_rows: int) -> "Iterator[Rows]":
        """Yield the rows in pieces of `num_rows` rows; the last piece may be shorter."""
        starts = range(0, self.num_rows, num_rows)
        for start, ids in zip(starts, split_ids(self.ids, num_rows), strict=True):
            piece = slice(start, start + num_rows)
            weights, further = (
                None if values is None else values[piece] for values in (self.weights, self.further_labels)
            )
            yield Rows(self.labels[piece], self.dense[piece], ids, weights, further)


@dataclass(frozen=True)
class Runs:
    """Ranges of row numbers [starts[i], ends[i]), ascending."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class RowSource(Protocol):
    """Rows that can be read in any order."""

    @property
    def num_rows(self) -> int: ...

    @property
    def schema(self) -> DataSchema: ...

    @property
    def row_bytes(self) -> int:
        """Average bytes of a stored row."""
        ...

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        """Read the rows with these numbers [n], each within 0 to num_rows - 1, in this order; repeats are allowed."""
        ...

    def read_weights(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Read the weights [n] of these rows alone; None if all rows have the same weight."""
        ...

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """Accept a hint: the rows of `now` are read next, in any order, then the rows of `soon`, others later."""
        ...

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Return the probabilities [n] that the labels were drawn with; None if they are not known."""
        ...


@dataclass(frozen=True)
class Renumbered(ABC):
    """Some rows of a source, renumbered from 0. Most are found by arithmetic, so that no list of numbers is kept."""

    source: RowSource
    num_rows: int

    @property
    def schema(self) -> DataSchema:
        return self.source.schema

    @property
    def row_bytes(self) -> int:
        return self.source.row_bytes

    @abstractmethod
    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers in the source of the rows [n]."""

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        return self.source.read(self.find(row_numbers))

    def read_weights(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float32] | None:
        return self.source.read_weights(self.find(row_numbers))

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        self.source.look_ahead(*(Runs(self.find(runs.starts), self.find(runs.ends - 1) + 1) for runs in (now, soon)))

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float64] | None:
        return self.source.best_probabilities(self.find(row_numbers))


@dataclass(frozen=True)
class Subset(Renumbered):
    """Rows of a source whose numbers are listed."""

    row_numbers: NDArray[np.int64]
    """[num_rows] numbers of the rows in `source`."""

    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.row_numbers[row_numbers]

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """Ignore the hint: ranges of these rows are not ranges in `source`."""
