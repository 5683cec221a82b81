"""The split of training rows into rows for a model to learn from and validation rows to choose the best model."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrm.config import compute_period, count_validation_rows
from dlrm.data.dataset import Dataset
from dlrm.data.random import random_bits, stream_key
from dlrm.data.rows import DataSchema, Rows, RowSource, Runs

_PLACES = 0x7A11
"""Number of the stream of random places of validation rows."""
_READ_ROWS = 65_536


@dataclass(frozen=True)
class Renumbered(ABC):
    """Rows of a source that arithmetic finds, so that no list of row numbers is kept."""

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


def compute_mean_weight(source: RowSource) -> float:
    """Compute the mean weight of all rows; 1 if they have no weights."""
    total = 0.0
    for start in range(0, source.num_rows, _READ_ROWS):
        weights = source.read_weights(np.arange(start, min(start + _READ_ROWS, source.num_rows)))
        if weights is None:
            return 1.0
        total += float(weights.sum(dtype=np.float64))
    return total / source.num_rows


@dataclass(frozen=True)
class OneOfEveryK(Renumbered):
    """One row of every k, at a random place among them, as it is in files that have a period too."""

    k: int
    key: int
    """Key of the random places."""

    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return row_numbers * self.k + _draw_places(self.key, row_numbers, self.k)


@dataclass(frozen=True)
class RestOfEveryK(Renumbered):
    """The rows that `OneOfEveryK` leaves, and the last ones, fewer than k."""

    k: int
    key: int

    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        # k - 1 rows of every k are left: those before the place of the other one, and those after it.
        whole, rest = np.divmod(row_numbers, self.k - 1)
        is_last = whole >= self.source.num_rows // self.k
        return whole * self.k + rest + (~is_last & (rest >= _draw_places(self.key, whole, self.k)))


@dataclass(frozen=True)
class FromRow(Renumbered):
    """Rows `first`, `first` + 1, `first` + 2, ..."""

    first: int

    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return row_numbers + self.first


def hold_out_validation(dataset: Dataset, fraction: float, split: Literal["hash", "tail"], seed: int) -> Dataset:
    """Return the data with about `fraction` of the training rows held out as validation rows.

    split: hash holds out one row of every k, at a place that `seed` draws, so that runs of several seeds also show what
    the choice of these rows does; tail holds out the last rows. Fewer than k rows are all trained on, and so are all
    rows if no trained row or no validation row would have a weight above 0.
    """
    train = dataset.train
    num_held_out = count_validation_rows(train.num_rows, fraction, split)
    if num_held_out == 0:
        return dataset
    num_left = train.num_rows - num_held_out
    if split == "tail":
        parts = FromRow(train, num_left, first=0), FromRow(train, num_held_out, first=num_left)
    else:
        k, key = compute_period(fraction), stream_key(seed, _PLACES)
        parts = RestOfEveryK(train, num_left, k=k, key=key), OneOfEveryK(train, num_held_out, k=k, key=key)
    if not dataset.has_weights:
        return replace(dataset, train=parts[0], validation=parts[1])
    # Gradients and losses are divided by the mean weight of the rows that are trained on.
    mean_weight, mean_of_validation = map(compute_mean_weight, parts)
    if not (mean_weight > 0.0 and mean_of_validation > 0.0):
        return dataset
    return replace(dataset, train=parts[0], validation=parts[1], mean_train_weight=mean_weight)


def _draw_places(key: int, blocks: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Draw a place from 0 to k - 1 for each block of k rows."""
    return (random_bits(key, blocks) % np.uint64(k)).astype(np.int64)
