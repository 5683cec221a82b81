"""Times of the windows of a log, by which ids are forgotten."""

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""Seconds since 1970."""
DAY_SECONDS = 86_400


def find_latest(times: Times) -> Times:
    """Find the latest of each time and those before it [n]; NaN counts as unknown, -inf is before the first known."""
    return np.maximum.accumulate(np.where(np.isnan(times), -np.inf, times))


class WindowClock:
    """The time of each window: the median of its rows' times, or an earlier window's if that is later.

    So rows that come late neither age a value nor make it younger, and a few wrong times do nothing. A window without
    times has the time of the one before, or of the first one with times.
    """

    def __init__(self, before: Times, medians: Times) -> None:
        """Set the times of windows; at least one must be known.

        before: [k] times of the last windows of an earlier log, which have the numbers -k to -1. medians: [n] times of
        windows 0 to n - 1, NaN if no row has one.
        """
        times = np.concatenate([before, medians])
        self._times = np.maximum(find_latest(times), times[~np.isnan(times)][0])
        self._num_before = len(before)

    def find_oldest(self, window: int, seconds: float) -> int | None:
        """Find the first window that is less than so many seconds before `window`; None if all known ones are."""
        times = self._times
        first = int(np.searchsorted(times, times[self._num_before + window] - seconds, side="right"))
        return first - self._num_before if first else None

    def list_last(self, number: int) -> Times:
        """List the times of the last windows, as many as `number` or all."""
        return self._times[max(len(self._times) - number, 0) :]
