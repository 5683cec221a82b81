"""Parts of a row source: some of its rows under other numbers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.rows import DataSchema, Rows, RowSource, Runs

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
    """Compute the mean weight of all rows; 1 where they have no weights."""
    total = 0.0
    for start in range(0, source.num_rows, _READ_ROWS):
        weights = source.read_weights(np.arange(start, min(start + _READ_ROWS, source.num_rows)))
        if weights is None:
            return 1.0
        total += float(weights.sum(dtype=np.float64))
    return total / source.num_rows
