"""Counts of the values of a column over any number of parts, within a bound of memory.

Counts are added up in passes over the parts. If the distinct values of a pass exceed the bound, the pass drops the
upper half of the values and the next pass counts them. So each pass covers a range of ascending values, and the memory
depends neither on the number of rows nor on the number of values that are too rare to be kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

MAX_POINTS = 1 << 15
"""Largest number of distinct values of a summary."""
_MIN_PENDING = 1 << 18
"""Smallest number of pending counts that `Tally.add` adds up: each addition goes through all counts of the column."""


@dataclass(frozen=True)
class ValueCounts:
    """Distinct values and their counts."""

    values: pl.Series
    """[n] values, ascending and distinct: Int64 or String."""
    counts: NDArray[np.int64]
    """[n] counts of the values."""

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def num_bytes(self) -> int:
        return int(self.values.estimated_size()) + self.counts.nbytes

    def select_range(self, start: int | str | None, end: int | str | None) -> "ValueCounts":
        """Select the counts of the values in [start, end); None: no bound on that side."""
        first = 0 if start is None else self._find_index(start)
        last = len(self) if end is None else self._find_index(end)
        return ValueCounts(self.values.slice(first, max(last - first, 0)), self.counts[first:last])

    def select_frequent(self, min_count: int) -> "ValueCounts":
        """Select the values that occur at least `min_count` times, and copy them with their counts."""
        is_frequent = self.counts >= min_count
        return ValueCounts(copy_values(self.values.filter(pl.Series(is_frequent))), self.counts[is_frequent])

    def _find_index(self, value: int | str) -> int:
        return int(self.values.search_sorted(value, side="left")) if len(self) else 0


@dataclass
class Tally:
    """The counts of one column in one pass, for the values in [start, end); None: no bound."""

    start: int | str | None
    end: int | str | None = None
    """First value that is left to the next pass; None if no value is left."""
    runs: list[ValueCounts] = field(default_factory=list)
    """Counts to be added up. The first are the sum of earlier parts."""
    num_pending: int = 0
    """Number of values of the other runs."""

    def add(self, counts: ValueCounts) -> None:
        counts = counts.select_range(self.start, self.end)
        if not len(counts):
            return
        self.num_pending += len(counts) if self.runs else 0
        self.runs.append(counts)
        if self.num_pending >= max(_MIN_PENDING, len(self.runs[0])):
            self.add_up()

    def add_up(self) -> ValueCounts | None:
        """Add up all counts, and return them; None if there are none."""
        if self.runs:
            self.runs, self.num_pending = [merge(self.runs)], 0
        return self.runs[0] if self.runs else None

    @property
    def num_bytes(self) -> int:
        return sum(counts.num_bytes for counts in self.runs)

    def halve(self) -> bool:
        """Drop the upper half of the values, which the next pass counts.

        Return False if there are fewer than two values, which cannot be halved.
        """
        total = self.add_up()
        if total is None or len(total) < 2:
            return False
        self.end = total.values[len(total) // 2]
        lower = total.select_range(None, self.end)
        self.runs = [ValueCounts(copy_values(lower.values), lower.counts.copy())]
        return True


def shrink(tallies: Iterable[Tally], max_bytes: int) -> None:
    """Halve the largest tally until all tallies together take at most `max_bytes`, or none can be halved further."""
    sizes = {index: (tally.num_bytes, tally) for index, tally in enumerate(tallies)}
    while sum(size for size, _ in sizes.values()) > max_bytes:
        index = max(sizes, key=lambda index: sizes[index][0])
        tally = sizes[index][1]
        if not tally.halve():
            del sizes[index]
            continue
        sizes[index] = tally.num_bytes, tally


def merge(runs: Sequence[ValueCounts]) -> ValueCounts:
    """Sum several counts into one."""
    if len(runs) == 1:
        return runs[0]
    values = pl.concat([run.values for run in runs], rechunk=True)
    counts = np.concatenate([run.counts for run in runs])
    if values.dtype == pl.String:
        frame = pl.DataFrame({"value": values, "count": counts})
        frame = frame.group_by("value").agg(pl.col("count").sum()).sort("value")
        return ValueCounts(copy_values(frame["value"]), frame["count"].to_numpy())
    numbers = values.to_numpy()
    # A stable sort is fast here because it uses the runs that are sorted already.
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    is_first = np.ones(len(numbers), dtype=bool)
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    first = np.flatnonzero(is_first)
    return ValueCounts(pl.Series(numbers[first]), np.add.reduceat(counts[order], first))


def copy_values(values: pl.Series) -> pl.Series:
    """Copy the values: a slice of a series, or a string of it, keeps the memory of the whole series alive."""
    if values.dtype == pl.String:
        return pl.Series(values.to_arrow(compat_level=pl.CompatLevel.oldest()))
    return pl.Series(values.to_numpy().copy())


class QuantileSummary:
    """The distinct values of a column and their counts, thinned out if there are too many, to take quantiles from.

    Summaries of the parts are merged in pairs, pairs of pairs and so on, and each is thinned out to MAX_POINTS values.
    The number of values up to a kept one stays exact when a summary is thinned out, so that only the values between two
    kept ones are misplaced. With P parts, the share of values up to any number is thus off by at most
    (1 + log2(P)) / MAX_POINTS; it is exact if there are at most MAX_POINTS distinct values. The same parts in the same
    order give the same summary.
    """

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
