"""A fixed sample of the training rows, on which evaluations measure how far training rows are ahead of others."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.dataset import Dataset
from dlrm.data.rows import RowSource
from dlrm.data.validation import Renumbered, compute_mean_weight

RUN_ROWS = 64
"""Rows of one contiguous run of the sample: a few pages of a mapped file, so that not all of a large one is read."""


@dataclass(frozen=True)
class EvenRuns(Renumbered):
    """Runs of `run_rows` rows: `num_runs` of them, spread evenly over the source."""

    run_rows: int
    num_runs: int

    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        run, in_run = np.divmod(row_numbers, self.run_rows)
        return run * self.source.num_rows // self.num_runs + in_run


def sample_train_rows(dataset: Dataset, max_rows: int) -> RowSource | None:
    """Return a sample of the training rows, the same for every seed: `max_rows` rounded down to whole runs.

    It has no more rows than there are evaluation rows. None if `max_rows` is 0, or no row of it has a weight.
    """
    train = dataset.train
    num_rows = min(max_rows, dataset.evaluation.num_rows, train.num_rows)
    if num_rows == 0:
        return None
    run_rows = min(RUN_ROWS, num_rows)
    num_runs = num_rows // run_rows
    sample = EvenRuns(train, run_rows * num_runs, run_rows=run_rows, num_runs=num_runs)
    return sample if not dataset.has_weights or compute_mean_weight(sample) > 0.0 else None
