"""The split of training rows into those that a model learns from and the validation rows that choose the best one."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrm.config import compute_period, count_validation_rows
from dlrm.data.dataset import Dataset
from dlrm.data.random import random_bits, stream_key
from dlrm.data.renumbered import Renumbered, compute_mean_weight

_PLACES = 0x7A11
"""Number of the stream of random places of validation rows."""


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
    rows where no trained row or no validation row would have a weight above 0.
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
