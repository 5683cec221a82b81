"""Weights of the zeros of conditional tasks, so that missing labels bias nothing.

A task that is given an earlier one has label 0 in every row of earlier label 0, whereas its label may be missing in
rows of earlier label 1. If it is known in a share s of these, whatever its value, each of the filled zeros counts s:
both kinds of rows then have their true proportion, and p(later | earlier) is the rate among the known labels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np


def count_known_shares(labels: np.ndarray, parents: Sequence[int | None]) -> list[float]:
    """Count for each task the share s of the rows with label 1 of its parent that have a label of it.

    labels: [n, T], NaN where missing. It is 1 for a task without a parent, and if no row has label 1 of the parent.
    """
    shares: list[float] = []
    for number, parent in enumerate(parents):
        own = labels[:0, number] if parent is None else labels[labels[:, parent] == 1, number]
        shares.append(float(1 - np.isnan(own).mean()) if len(own) else 1.0)
    return shares


def weigh_filled_zeros(labels: Any, parents: Sequence[int | None], shares: Any) -> list[Any]:
    """Return the weights [n] of the labels of each task.

    labels: [n, T]. shares: [T], as `count_known_shares` has them. Arrays and tensors get weights of their kind. In a
    chain of tasks a zero has the product of the shares after the task of label 0.
    """
    weights: list[Any] = []
    for parent, share in zip(parents, shares, strict=True):
        if parent is None:
            weights.append(labels[:, 0] * 0 + 1)
        else:
            is_filled = labels[:, parent] == 0
            weights.append(is_filled * (share * weights[parent]) + ~is_filled)
    return weights
