"""Summary of the distribution of any number of values, in bounded memory, from which quantiles are taken.

Summaries of the parts are merged in pairs, pairs of pairs and so on, and each is thinned out to MAX_POINTS values. The
number of values up to a kept one stays exact when a summary is thinned out, so that only the values between two kept
ones are misplaced. With P parts, the share of values up to any number is thus off by at most
(1 + log2(P)) / MAX_POINTS; it is exact where there are at most MAX_POINTS distinct values. The same parts in the same
order give the same summary.
"""

import numpy as np
import polars as pl

from dlrm.data.prepare.counting import ValueCounts, copy_values, merge

MAX_POINTS = 1 << 15
"""Largest number of distinct values of a summary."""


class QuantileSummary:
    """The distinct values of a column and their counts, thinned out where there are too many."""

    def __init__(self) -> None:
        """Start without values."""
        self._levels: dict[int, ValueCounts] = {}
        """Counts of 2^level parts each, by level."""

    def add(self, counts: ValueCounts) -> None:
        """Add the values of the next part, Float64, as `thin_out` returns them."""
        level = 0
        while level in self._levels:
            counts = thin_out(merge([self._levels.pop(level), counts]))
            level += 1
        self._levels[level] = counts

    @property
    def counts(self) -> ValueCounts:
        """Values and counts of all parts together."""
        empty = ValueCounts(pl.Series([], dtype=pl.Float64), np.empty(0, dtype=np.int64))
        return merge([empty, *self._levels.values()])


def thin_out(counts: ValueCounts) -> ValueCounts:
    """Keep at most MAX_POINTS values that are evenly spread over the occurrences; each also stands for those before it,
    back to the previous one that is kept."""
    if len(counts) <= MAX_POINTS:
        return counts
    ends = np.cumsum(counts.counts)
    group_of = (ends - 1) * MAX_POINTS // ends[-1]
    kept = np.flatnonzero(np.append(np.diff(group_of) > 0, True))
    return ValueCounts(copy_values(counts.values.gather(kept)), np.diff(ends[kept], prepend=0))
