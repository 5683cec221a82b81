"""Sizes of a batch that grows by itself, by shares of the run's samples, and how they are shown."""

import math
from collections.abc import Sequence

FIRST_DIVISOR = 8
"""Divisor of the last size that gives the first one."""
MAX_FIRST_SIZE = 16_384
"""Largest first size, in samples: 524,288 that began with 65,536 ended 0.0009 of AUC below one that began with it,
both in small steps, one seed (docs/experiments.md)."""
GROWS_FROM, GROWS_UNTIL = 0.2, 0.6
"""Shares of the run's samples at which the first size ends, and by which the last one has begun."""
SIZES_PER_DOUBLING = 4
"""Number of sizes in which the batch doubles, a factor of 1.19 from one to the next. In each step a row of a table
moves by the sum over its samples, so that twice as large a batch raised the loss for some steps; small factors do not
(docs/experiments.md)."""
MAX_SHOWN = 4
"""Largest number of sizes before the last one that are shown one by one."""


def list_growing_sizes(last: int) -> list[tuple[int, float]]:
    """List the sizes before the last one, each with the share of the run's samples at which it ends, in their order.

    Sizes are in sixteenths of the first one, which makes them round numbers; of a small first one they repeat.
    """
    first = min(last // FIRST_DIVISOR, MAX_FIRST_SIZE)
    if first == 0:
        return []
    ratio = last / first
    num_sizes = math.ceil(SIZES_PER_DOUBLING * math.log2(ratio))
    return [
        (
            first * round(16 * ratio ** (number / num_sizes)) // 16,
            round(GROWS_FROM + (GROWS_UNTIL - GROWS_FROM) * number / num_sizes, 4),
        )
        for number in range(num_sizes)
    ]


def shorten_sizes(sizes: Sequence[str]) -> list[str]:
    """Return the sizes of a batch that grows as they are shown: of many, the first, how many follow, and the last."""
    if len(sizes) <= MAX_SHOWN:
        return list(sizes)
    return [sizes[0], f"{len(sizes) - 2} more sizes", sizes[-1]]
