"""Which rows are held out for evaluation."""

import numpy as np
from numpy.typing import NDArray

from dlrm.data.random import random_units, stream_key

_HELD_OUT = stream_key(0x5917)
"""The stream that decides; fixed, so that a row is held out in every run or in none."""
_BLOCK = 1 << 16


def hash_split(num_rows: int, eval_fraction: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of the training and of the evaluation rows, ascending; together 0 to num_rows - 1.

    A hash of its number decides about a row, whoever asks, in whichever run; a larger `eval_fraction` holds out the
    same rows and more.
    """
    train: list[NDArray[np.int64]] = []
    evaluation: list[NDArray[np.int64]] = []
    for start in range(0, num_rows, _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, num_rows), dtype=np.int64)
        held_out = random_units(_HELD_OUT, numbers) < eval_fraction
        train.append(numbers[~held_out])
        evaluation.append(numbers[held_out])
    return np.concatenate(train), np.concatenate(evaluation)
