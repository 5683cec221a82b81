"""Splits of rows: evaluation rows, validation rows to choose the best model, and a sample of the training rows.

On the sample evaluations measure how far training rows are ahead of others.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrm.config import compute_period, count_validation_rows
from dlrm.data.dataset import Dataset
from dlrm.data.rows import Renumbered, RowSource
from sharding.counter_random import random_bits, random_units, stream_key

_HELD_OUT_KEY = stream_key(0x5917)
"""Key of the random stream that decides; fixed, so that a row is held out either in every run or in none."""
_BLOCK_ROWS = 1 << 16
"""Rows decided at a time, which bounds the memory of `split_by_hash`."""


@dataclass(frozen=True)
class Split:
    """Rule for holding out some of rows 0 to num_rows - 1.

    hash: a hash of the row number decides, the same in every process and every run; a larger `eval_fraction` holds out
    the same rows and more. tail: the last `eval_fraction` of the rows are held out, rounded to the nearest row.
    """

    kind: Literal["hash", "tail"]
    eval_fraction: float
    num_rows: int

    def is_held_out(self, start: int, end: int) -> NDArray[np.bool_]:
        """Whether each of rows [start, end) is held out: [end - start] booleans."""
        numbers = np.arange(start, end, dtype=np.int64)
        if self.kind == "tail":
            return numbers >= self.num_rows - round(self.num_rows * self.eval_fraction)
        return random_units(_HELD_OUT_KEY, numbers) < self.eval_fraction


def split_by_hash(num_rows: int, eval_fraction: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row numbers of the training rows and of the evaluation rows, each ascending: together all rows."""
    split = Split("hash", eval_fraction, num_rows)
    train: list[NDArray[np.int64]] = []
    evaluation: list[NDArray[np.int64]] = []
    for start in range(0, num_rows, _BLOCK_ROWS):
        is_held_out = split.is_held_out(start, min(start + _BLOCK_ROWS, num_rows))
        train.append(np.flatnonzero(~is_held_out) + start)
        evaluation.append(np.flatnonzero(is_held_out) + start)
    return np.concatenate(train), np.concatenate(evaluation)


_PLACES = 0x7A11
"""Number of the stream of random places of validation rows."""
_READ_ROWS = 65_536


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
