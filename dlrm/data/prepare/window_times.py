"""Times of the windows of a log, read from its training rows."""

from collections.abc import Iterator

import numpy as np

from dlrm.data.encode.window_clock import DAY_SECONDS, Times, find_latest
from dlrm.data.errors import DataError
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.prepare.stage import StagedRows
from dlrm.record import TIMES_GO_BACK


def read_window_times(rows: StagedRows, window_rows: int) -> Times:
    """Return the median time of the training rows of each window [n]; NaN if none of them has a time.

    Of an even number of times the lower one of the middle two is taken.
    """
    medians: list[float] = []
    waiting: list[Times] = []
    num_left = window_rows
    for times in _read_times(rows):
        for piece in np.split(times, range(num_left, len(times), window_rows)):
            waiting.append(piece)
            num_left -= len(piece)
            if num_left <= 0:
                medians.append(_find_median(np.concatenate(waiting)))
                waiting, num_left = [], window_rows
    if num_left < window_rows:
        medians.append(_find_median(np.concatenate(waiting)))
    return np.array(medians, dtype=np.float64)


def require_window_times(medians: Times, before: Times) -> None:
    """Raise DataError if no window has a time. before: times of the windows of an earlier log."""
    if np.isnan(np.concatenate([before, medians])).all():
        raise DataError("no training row has a time", field="data.schema.time", valid="a column with times")


def report_late_windows(medians: Times, before: Times, ttl_days: float, progress: PreparationProgress) -> None:
    """Report the first window that is `ttl_days` before an earlier one.

    before: times of the windows of an earlier log.
    """
    times = np.concatenate([before, medians])
    days = (find_latest(times) - times) / DAY_SECONDS
    late = np.flatnonzero(days >= ttl_days)
    if len(late):
        message = (
            f"window {late[0] - len(before) + 1:,} of the training rows is {days[late[0]]:,.1f} days before an earlier "
            "one; no value ages until the log has caught up: are the files in order of time?"
        )
        progress.note(TIMES_GO_BACK, message)


def _read_times(rows: StagedRows) -> Iterator[Times]:
    """Yield the times of the training rows part by part."""
    for part in rows.parts:
        staged = rows.open(part)
        times = staged.times
        assert times is not None, "the schema has a time"
        yield times[~rows.is_held_out(part, staged)]


def _find_median(times: Times) -> float:
    present = times[~np.isnan(times)]
    middle = (len(present) - 1) // 2
    return float(np.partition(present, middle)[middle]) if len(present) else float("nan")
