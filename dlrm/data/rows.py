"""Rows of a click log, and where they come from."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Feature:
    """A categorical feature: its ids are the rows 0 to num_ids - 1 of its table."""

    name: str
    num_ids: int


@dataclass(frozen=True)
class DataSchema:
    """What every row holds beside its label: N dense features and F categorical ones, one id each."""

    num_dense: int
    features: tuple[Feature, ...]


@dataclass(frozen=True)
class Rows:
    """n rows. Categorical ids are feature-major, as a KeyedJaggedTensor holds them."""

    labels: NDArray[np.float32]
    """[n], 0 or 1."""
    dense: NDArray[np.float32]
    """[n, N], finite; a missing value is one that no present value takes."""
    ids: NDArray[np.int64]
    """[F, n], rows of the tables."""

    @property
    def num_rows(self) -> int:
        return len(self.labels)


class RowSource(Protocol):
    """Rows that can be read in any order."""

    @property
    def num_rows(self) -> int: ...

    @property
    def schema(self) -> DataSchema: ...

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        """The rows of these numbers [n], each within 0 to num_rows - 1, in this order; repeats are fine."""
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

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        return self.source.read(self.row_numbers[row_numbers])

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float64] | None:
        return self.source.best_probabilities(self.row_numbers[row_numbers])
