"""The global sample order: a function of (seed, epoch, batch), the same on every rank."""

import numpy as np
from numpy.typing import NDArray


class SampleOrder:
    """Every epoch is a permutation of all rows, cut into global batches, of which the last may be short.

    Batches are numbered through all epochs. The permutation of the present epoch is kept: 8 bytes a row.
    """

    def __init__(self, num_rows: int, global_size: int, seed: int) -> None:
        self._num_rows, self._global_size, self._seed = num_rows, global_size, seed
        self.num_batches_per_epoch = -(-num_rows // global_size)
        self._epoch = -1
        self._permutation = np.empty(0, dtype=np.int64)

    def epoch(self, index: int) -> int:
        """The epoch of batch `index`, counted from 0."""
        return index // self.num_batches_per_epoch

    def rows(self, index: int) -> NDArray[np.int64]:
        """Row numbers of global batch `index`: global_size of them, or what is left in an epoch's last batch."""
        epoch = self.epoch(index)
        if epoch != self._epoch:
            generator = np.random.Generator(np.random.Philox(key=np.array([self._seed, epoch], dtype=np.uint64)))
            self._permutation, self._epoch = generator.permutation(self._num_rows), epoch
        start = index % self.num_batches_per_epoch * self._global_size
        return self._permutation[start : start + self._global_size]
