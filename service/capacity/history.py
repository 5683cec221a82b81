"""History of what jobs had in use: a pure function of the intervals in which they had it."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

MAX_POINTS = 300
MAX_HOURS = 7 * 24
"""Longest time of a history, in hours."""
POINT_SECONDS = (15, 30, 60, 120, 300, 600, 900, 1200, 1800, 2400, 3600)
"""Seconds that a point may stand for."""

Amounts = tuple[int, int, int, int]
"""Amounts of cores, bytes of memory, GPUs and waiting jobs, or their changes."""
WAITING: Amounts = (0, 0, 0, 1)
"""Amounts of a job that waits."""


class Interval(NamedTuple):
    """Amounts that were there from a time to another one, in seconds since 1970."""

    start: float
    end: float | None
    """Time of the end; None if they are still there."""
    amounts: Amounts


@dataclass(frozen=True)
class Points:
    """Mean and largest amounts within consecutive times, a list of points for each of the amounts."""

    means: tuple[list[float], ...]
    maxima: tuple[list[int], ...]


def choose_point_seconds(hours: int) -> int:
    """Choose the shortest time of a point with which so many hours have at most `MAX_POINTS`."""
    # One more than their quotient, since a point begins at a multiple of its time.
    return next(seconds for seconds in POINT_SECONDS if hours * 3600 / seconds + 1 <= MAX_POINTS)


def sum_intervals(intervals: Iterable[Interval], start: float, end: float, point_seconds: int) -> Points:
    """Sum up intervals from `start` to `end`: mean and maximum of each amount for every `point_seconds` of it.

    The last point may be cut short.
    """
    # At one time ends come first, so that what takes the place of something else is not counted beside it.
    changes = deque(sorted(_list_changes(intervals, start, end)))
    points = Points(([], [], [], []), ([], [], [], []))
    level = [0, 0, 0, 0]
    point_start = start
    while point_start < end:
        point_end = min(point_start + point_seconds, end)
        while changes and changes[0][0] <= point_start:
            _apply(changes.popleft()[1], level)
        largest, sums, time = level.copy(), [0.0] * len(level), point_start
        while changes and changes[0][0] < point_end:
            next_time, change = changes.popleft()
            sums = [amount + each * (next_time - time) for amount, each in zip(sums, level, strict=True)]
            _apply(change, level)
            largest, time = [*map(max, largest, level)], next_time
        for index, each in enumerate(level):
            points.means[index].append((sums[index] + each * (point_end - time)) / (point_end - point_start))
            points.maxima[index].append(largest[index])
        point_start = point_end
    return points


def _apply(change: Amounts, level: list[int]) -> None:
    for index, amount in enumerate(change):
        level[index] += amount


def _list_changes(intervals: Iterable[Interval], start: float, end: float) -> Iterator[tuple[float, Amounts]]:
    """Yield the changes that intervals make within a time, by the time of each; those before its start at the start."""
    for interval in intervals:
        if interval.start >= end or (interval.end is not None and interval.end <= max(start, interval.start)):
            continue
        cores, memory, gpus, waiting = interval.amounts
        yield max(interval.start, start), interval.amounts
        if interval.end is not None and interval.end < end:
            yield interval.end, (-cores, -memory, -gpus, -waiting)
