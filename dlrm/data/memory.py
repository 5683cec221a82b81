"""Rows held in memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.rows import DataSchema, Rows


@dataclass(frozen=True)
class MemoryRows:
    """A source whose rows are arrays; row by row, so that reading a row at random touches few cache lines."""

    schema: DataSchema
    labels: NDArray[np.float32]
    """[n]."""
    dense: NDArray[np.float32]
    """[n, N]."""
    ids: NDArray[np.int32]
    """[n, F]."""

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        ids = np.ascontiguousarray(self.ids[row_numbers].T, dtype=np.int64)
        return Rows(labels=self.labels[row_numbers], dense=self.dense[row_numbers], ids=ids)

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> None:  # noqa: ARG002
        """None: nobody knows what drew the labels."""
        return
