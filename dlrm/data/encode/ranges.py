"""Vocabulary of numbers: each range of values has a row of its table."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config.schema import TIME_PART_VALUES, TimePart
from dlrm.data.raw.values.distinct import round_to_float32


@dataclass(frozen=True)
class RangeVocabulary:
    """Vocabulary with one row for each range of numbers, ascending, from row 1 on; row 0 is for missing values.

    Numbers below or above all numbers of the training rows belong to the first or the last range.
    """

    edges: tuple[float, ...]
    """Least number of each range but the first, ascending."""
    missing_id: int = 0

    @classmethod
    def divide(cls, values: NDArray[np.float64], counts: NDArray[np.int64], num_ranges: int) -> "RangeVocabulary":
        """Divide numbers into at most `num_ranges` ranges with about equally many occurrences each.

        values: [n] distinct numbers, ascending. counts: [n] their numbers of occurrences. If there are no more numbers
        than ranges, each number has a range of its own.
        """
        starts = divide_evenly(counts, min(num_ranges, len(values)))
        return cls(tuple(values[starts[1:]].tolist()))

    @classmethod
    def for_time_part(cls, part: TimePart) -> "RangeVocabulary":
        """Make the vocabulary of a part of times, with a row for each value."""
        return cls(tuple(float(value) for value in TIME_PART_VALUES[part][1:]))

    @property
    def num_ids(self) -> int:
        return len(self.edges) + 2

    @property
    def names(self) -> list[str]:
        """Names of the ranges, such as `[3, 7)`."""
        texts = [f"{edge:.9g}" for edge in self.edges]
        if not texts:
            return ["any"]
        between = [f"[{low}, {high})" for low, high in pairwise(texts)]
        return [f"< {texts[0]}", *between, f">= {texts[-1]}"]

    def encode(self, distinct: pl.Series) -> NDArray[np.int64]:
        # Edges of earlier versions are not rounded, as the numbers are.
        edges = round_to_float32(np.array(self.edges))
        return np.searchsorted(edges, distinct.to_numpy(), side="right") + 1


def divide_evenly(weights: NDArray[np.int64], num_groups: int) -> list[int]:
    """Divide items into consecutive groups of about equal weight; return the index at which each group begins.

    weights: [n], n at least `num_groups`; each group has at least one item. The groups are chosen from the first to the
    last. A heavy item is a group of its own, or with a few light items before it; each other group is as near as
    possible to an equal share of the light items that are left.
    """
    is_heavy = _find_heavy_items(weights, num_groups)
    heavy_items = np.flatnonzero(is_heavy).tolist()
    # In float64, since a search for a fraction would otherwise convert all numbers each time.
    ends = np.cumsum(weights, dtype=np.float64)
    light_ends = np.cumsum(np.where(is_heavy, 0, weights), dtype=np.float64)
    starts: list[int] = []
    start = num_heavy = 0
    done = done_light = 0.0
    for num_left in range(num_groups, 0, -1):
        starts.append(start)
        next_heavy = heavy_items[num_heavy] if num_heavy < len(heavy_items) else len(weights)
        num_light = num_left - (len(heavy_items) - num_heavy)
        share = (light_ends[-1] - done_light) / num_light if num_light > 0 else np.inf
        last = min(int(np.searchsorted(ends, done + share)), next_heavy)
        before = ends[last - 1] - done if last > start else 0.0
        # Light items join the heavy one after them only where they are less than half a share.
        is_shorter_better = before >= share / 2 if last == next_heavy else share - before < ends[last] - done - share
        if last > start and is_shorter_better:
            last -= 1
        last = min(last, len(weights) - num_left)
        num_heavy += last == next_heavy
        start, done, done_light = last + 1, float(ends[last]), float(light_ends[last])
    return starts


def _find_heavy_items(weights: NDArray[np.int64], num_groups: int) -> NDArray[np.bool_]:
    """Return a mask [n] of the items that weigh more than an equal share of the light ones."""
    is_heavy = np.zeros(len(weights), dtype=np.bool_)
    while True:
        light = weights[~is_heavy].sum()
        found = weights * (num_groups - np.count_nonzero(is_heavy)) > light
        if np.array_equal(found | is_heavy, is_heavy):
            return is_heavy
        is_heavy |= found
