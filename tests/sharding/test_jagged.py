"""Sizes of bags, from arrays and from tensors."""

from typing import Any

import numpy as np
import pytest
import torch

from sharding.jagged import BagSizes, JaggedIds


@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([[1, 1, 1], [1, 1, 1]], BagSizes([3, 3], are_single=True)),
        ([[0, 2, 1], [1, 1, 1]], BagSizes([3, 3], are_single=False)),
        ([[4, 0, 0], [0, 0, 0]], BagSizes([4, 0], are_single=False)),
        ([[], []], BagSizes([0, 0], are_single=True)),
    ],
)
def test_sizes_are_counted_by_feature(make: Any, lengths: list[list[int]], sizes: BagSizes):
    assert JaggedIds(make([]), make(lengths)).measure_sizes() == sizes


def test_sizes_that_are_known_are_not_counted_again():
    known = BagSizes([7], are_single=False)
    assert JaggedIds(torch.empty(7), torch.ones(1, 7, device="meta"), known).measure_sizes() is known
