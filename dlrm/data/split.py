"""The split of rows into training and held-out evaluation rows."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrm.data.random import random_units, stream_key

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
