"""Sums over the parts of flat tensors, such as layers, by as many operations for many parts as for few.

Each operation is one call for all parts: on CUDA a few launches, in an order that is always the same, so that all ranks
have the same bits.
"""

from collections.abc import Sequence
from functools import cache

import torch


def sum_parts(flats: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
    """Sum the elements of each part, none below 0: [flats, parts] float64. flats: [P] each, of one dtype.

    sizes: elements of each part, in order.
    """
    return _compute_norms(flats, sizes, 1)


def sum_squares_of_parts(flats: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
    """Sum the squares of the elements of each part: [flats, parts] float64. Arguments: as for `sum_parts`."""
    return _compute_norms(flats, sizes, 2).square_()


def expand_parts(values: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Repeat the value of each part for each of its elements: [P]. values: [parts]."""
    return values.index_select(0, _number_elements(tuple(sizes), values.device))


def _compute_norms(flats: Sequence[torch.Tensor], sizes: Sequence[int], order: int) -> torch.Tensor:
    # torch has no sum that takes a list of tensors in one call, but norms: of order 1 they are sums of what is not
    # below 0.
    parts = [part for flat in flats for part in flat.split(list(sizes))]
    return torch.stack(torch._foreach_norm(parts, order, dtype=torch.float64)).view(len(flats), len(sizes))


@cache
def _number_elements(sizes: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return the number of the part of each element: [P] int32."""
    numbers = torch.arange(len(sizes), dtype=torch.int32)
    return numbers.repeat_interleave(torch.tensor(sizes)).to(device)
