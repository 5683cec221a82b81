"""The rows that yardsticks are trained and measured on: all of them, or an even sample of contiguous runs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.rows import Rows, RowSource
from dlrm.metrics.true_rates import get_log_share, weigh_negatives

RUN_ROWS = 1024
"""Rows of one contiguous run of a sample: a mapped file is read in runs."""
PIECE_ROWS = 64 * RUN_ROWS
"""Rows that are scored at a time."""
MAX_BYTES = 160 << 20
"""Bytes of packed training rows that a fit uses, at most: rows of many features are fewer."""
BYTES_PER_MEMORY = 1 / 16
"""Share of the job's memory that these bytes may be: a fit takes several times as much."""


def compute_max_bytes(memory: int) -> int:
    """Compute the bytes of packed training rows that a fit may use. memory: of the job, in bytes."""
    return int(min(MAX_BYTES, memory * BYTES_PER_MEMORY))


def choose_rows(num_rows: int, max_rows: int) -> NDArray[np.int64]:
    """Choose up to about `max_rows` of the rows 0 to num_rows - 1, ascending: all of them where they are no more.

    A sample is made of runs of RUN_ROWS rows, evenly spaced, so that rows in order of time are from all times.
    """
    if num_rows <= max_rows:
        return np.arange(num_rows, dtype=np.int64)
    num_runs = max(max_rows // RUN_ROWS, 1)
    starts = np.arange(num_runs, dtype=np.int64) * num_rows // num_runs
    return (starts[:, None] + np.arange(min(RUN_ROWS, max_rows, num_rows // num_runs))).reshape(-1)


def split_features(rows: Rows) -> list[NDArray[np.int64]]:
    """Return the ids of each feature, row by row: views of the ids of `rows`."""
    ends = np.cumsum(rows.ids.lengths.sum(axis=1, dtype=np.int64))
    return np.split(rows.ids.values, ends)[:-1]


@dataclass(frozen=True)
class ScoredRows:
    """Rows with the logits that a model gives them."""

    labels: NDArray[np.float32]
    logits: NDArray[np.floating]
    weights: NDArray[np.float32] | None

    def correct(self, negative_sampling: float | None) -> "ScoredRows":
        """Return the rows at true rates, given the share of the negatives that they hold; None: all."""
        logits = self.logits + get_log_share(negative_sampling)
        return ScoredRows(self.labels, logits, weigh_negatives(self.labels, self.weights, negative_sampling))


def score_rows(
    source: RowSource, row_numbers: NDArray[np.int64], predict: Callable[[Rows], NDArray[np.float64]]
) -> ScoredRows:
    """Score the rows with these numbers, at least one, in pieces of PIECE_ROWS rows. predict: returns logits."""
    pieces = range(0, len(row_numbers), PIECE_ROWS)
    read = (source.read(row_numbers[start : start + PIECE_ROWS]) for start in pieces)
    labels, logits, weights = zip(*((rows.labels, predict(rows), rows.weights) for rows in read), strict=True)
    is_weighted = weights[0] is not None
    return ScoredRows(np.concatenate(labels), np.concatenate(logits), np.concatenate(weights) if is_weighted else None)
