"""The split of training rows into those that a model learns from and the validation rows that choose the best one."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrm.data.dataset import Dataset
from dlrm.data.rows import DataSchema, Rows, RowSource, Runs


@dataclass(frozen=True)
class _Renumbered(ABC):
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

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        self.source.look_ahead(*(Runs(self.find(runs.starts), self.find(runs.ends - 1) + 1) for runs in (now, soon)))

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float64] | None:
        return self.source.best_probabilities(self.find(row_numbers))


@dataclass(frozen=True)
class AllButEveryKth(_Renumbered):
    """All rows but `first`, `first` + k, `first` + 2 k, ..."""

    k: int
    first: int

    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        # k - 1 rows of every k are left: those before `first`, and those after it.
        whole, rest = np.divmod(row_numbers, self.k - 1)
        return whole * self.k + rest + (rest >= self.first)


@dataclass(frozen=True)
class EveryKth(_Renumbered):
    """Rows `first`, `first` + k, `first` + 2 k, ..."""

    k: int
    first: int

    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return row_numbers * self.k + self.first


@dataclass(frozen=True)
class FromRow(_Renumbered):
    """Rows `first`, `first` + 1, `first` + 2, ..."""

    first: int

    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return row_numbers + self.first


def hold_out_validation(dataset: Dataset, fraction: float, split: Literal["hash", "tail"], seed: int) -> Dataset:
    """Return the data with about `fraction` of the training rows held out as validation rows.

    split: hash holds out every k-th row, from row `seed` mod k on, so that runs of several seeds also show what the
    choice of these rows does; tail holds out the last rows. Fewer than k rows are all trained on.
    """
    train = dataset.train
    if fraction == 0.0:
        return dataset
    k = round(1.0 / fraction)
    if train.num_rows < k:
        return dataset
    if split == "tail":
        num_held_out = train.num_rows // k
        num_left = train.num_rows - num_held_out
        return replace(
            dataset, train=FromRow(train, num_left, first=0), validation=FromRow(train, num_held_out, first=num_left)
        )
    first = seed % k
    num_held_out = len(range(first, train.num_rows, k))
    return replace(
        dataset,
        train=AllButEveryKth(train, train.num_rows - num_held_out, k=k, first=first),
        validation=EveryKth(train, num_held_out, k=k, first=first),
    )
