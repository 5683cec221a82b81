"""Sizes of a batch that grows by itself, by shares of the run's samples, and how they are shown."""

import math
from collections.abc import Sequence

FIRST_DIVISOR = 8
"""Divisor of the last size that gives the first one."""
MAX_FIRST_SIZE = 16_384
"""Largest first size, in samples: 524,288 grown from 65,536 ended 0.0009 of AUC below 524,288 grown from this, both in
small steps, one seed (benchmarks/experiments.md)."""
GROWS_FROM, GROWS_UNTIL = 0.2, 0.6
"""Shares of the run's samples: end of the first size, and latest beginning of the last one."""
SIZES_PER_DOUBLING = 4
"""Number of sizes in which the batch doubles, a factor of 1.19 from one to the next. In each step a row of a table
moves by the sum over its samples, so that twice as large a batch raised the loss for some steps; small factors do not
(benchmarks/experiments.md)."""
USUAL_RANKS = 16
"""Largest number of ranks that the unit of sizes is chosen for."""
MAX_SHOWN = 4
"""Largest number of sizes before the last one that are shown one by one."""


def list_growing_sizes(last: int) -> list[tuple[int, float]]:
    """List the sizes before the last one, each with the share of the run's samples at which it ends, in their order.

    All are multiples of `find_unit`; of a small last one they repeat.
    """
    first = min(last // FIRST_DIVISOR, MAX_FIRST_SIZE)
    if first == 0:
        return []
    ratio, unit = last / first, find_unit(last)
    num_sizes = math.ceil(SIZES_PER_DOUBLING * math.log2(ratio))
    return [
        (
            round(first * ratio ** (number / num_sizes) / unit) * unit,
            round(GROWS_FROM + (GROWS_UNTIL - GROWS_FROM) * number / num_sizes, 4),
        )
        for number in range(num_sizes)
    ]


def find_unit(last: int) -> int:
    """Find the number that divides all sizes up to `last`, in samples.

    It depends on the last size alone, so that a stopped run goes on with another number of ranks: it divides `last`,
    and is itself divisible by as many of the usual numbers of ranks as may be. A sixteenth of the first size at most,
    or 8, so that sizes keep near their curve.
    """
    first = min(last // FIRST_DIVISOR, MAX_FIRST_SIZE)
    largest = max(first // 16, min(first // 4, 8), 1)
    units = [unit for unit in range(1, largest + 1) if last % unit == 0]
    return max(units, key=lambda unit: (sum(unit % num_ranks == 0 for num_ranks in range(1, USUAL_RANKS + 1)), unit))


def shorten_sizes(sizes: Sequence[str]) -> list[str]:
    """Return the sizes of a batch that grows as they are shown: of many, the first, how many follow, and the last."""
    if len(sizes) <= MAX_SHOWN:
        return list(sizes)
    return [sizes[0], f"{len(sizes) - 2} more sizes", sizes[-1]]
