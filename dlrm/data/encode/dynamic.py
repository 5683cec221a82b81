"""The map from values to table rows of a column whose ids come and go, window by window of the log.

It is kept in arrays sorted by key, and not in a hash table: a window looks up and adds its values all at once.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config.dynamic_ids import DynamicIdsConfig
from dlrm.data.encode.window_clock import DAY_SECONDS, WindowClock

Keys = NDArray[np.uint64]
Ints = NDArray[np.int64]

FIRST_ROW = 2
"""Rows 0 and 1 are for values without a row and for missing values, as in a counted vocabulary."""
MIN_IDLE_WINDOWS = 2
"""Windows in a row without a value before its row may be another's: this one and the one before. A batch is no longer
than a window, so that none has both values."""
_NO_ROW = -1
_LONG_AGO = np.iinfo(np.int64).min
_MAX_FORGOTTEN_FRACTION = 0.25
"""Largest share of the entries that forgotten values may take up."""
MAX_WAITING_PER_ROW = 4
"""Largest number of values that wait for a row, as a multiple of the rows of a bounded table."""


def make_keys(values: pl.Series) -> Keys:
    """Return a number for each value: of an integer its bits, of a text a hash of 64 bits, the same in one process."""
    return values.hash().to_numpy() if values.dtype == pl.String else values.to_numpy().astype(np.int64).view(np.uint64)


@dataclass
class Entries:
    """Values that the map knows, ascending by key: those with a row, and those that wait for one.

    A forgotten value stays for a while, without a count or a row, since arrays are long and change in every window.
    """

    keys: Keys
    """[n]"""
    counts: Ints
    """[n] training rows with the value, since it was known."""
    last_windows: Ints
    """[n] number of the last window with the value; _LONG_AGO if it is forgotten."""
    rows: Ints
    """[n] table row, or -1."""

    @classmethod
    def empty(cls) -> "Entries":
        return cls(np.empty(0, dtype=np.uint64), *(np.empty(0, dtype=np.int64) for _ in range(3)))

    @property
    def is_forgotten(self) -> NDArray[np.bool_]:
        return self.last_windows == _LONG_AGO

    def find(self, keys: Keys) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the place of each key, or of the next larger one, and whether it is there."""
        places = np.searchsorted(self.keys, keys)
        if not len(self.keys):
            return places, np.zeros(len(keys), dtype=np.bool_)
        return places, self.keys[np.minimum(places, len(self.keys) - 1)] == keys

    def find_or_insert(self, keys: Keys, window: int) -> Ints:
        """Return the place of each key [k], ascending. Those that are not there are added without a count or a row."""
        places, is_there = self.find(keys)
        is_new = ~is_there
        # Each place moves by the number of keys that are added before it.
        places = places + np.cumsum(is_new) - is_new
        added = places[is_new]
        is_old = np.ones(len(self.keys) + len(added), dtype=np.bool_)
        is_old[added] = False

        def spread(array: NDArray[Any], values: Any) -> NDArray[Any]:
            longer = np.empty(len(is_old), dtype=array.dtype)
            longer[is_old], longer[added] = array, values
            return longer

        self.keys = spread(self.keys, keys[is_new])
        self.counts, self.rows = spread(self.counts, 0), spread(self.rows, _NO_ROW)
        self.last_windows = spread(self.last_windows, window)
        return places

    def forget(self, places: Ints) -> None:
        self.counts[places], self.last_windows[places], self.rows[places] = 0, _LONG_AGO, _NO_ROW

    def select(self, is_kept: NDArray[np.bool_]) -> "Entries":
        return Entries(self.keys[is_kept], self.counts[is_kept], self.last_windows[is_kept], self.rows[is_kept])


class DynamicMap:
    """The map of one column, at the end of the last window that it has seen."""

    def __init__(
        self,
        config: DynamicIdsConfig,
        window_rows: int,
        entries: Entries | None = None,
        num_rows: int = 0,
        clock: WindowClock | None = None,
    ) -> None:
        """Begin with the entries and table rows of an earlier log, whose last window is number -1; or with none.

        clock: times of all windows, for `ttl_days`.
        """
        self._config, self._clock = config, clock
        self._ttl_windows = None if config.ttl_rows is None else -(-config.ttl_rows // window_rows)
        self._entries = Entries.empty() if entries is None else entries
        has_row = self._entries.rows >= 0
        self.num_rows = max(FIRST_ROW, num_rows)
        """Number of table rows that any value has had, rows 0 and 1 included."""
        self._is_owned = np.zeros(self.num_rows, dtype=np.bool_)
        self._is_owned[self._entries.rows[has_row]] = True

    @property
    def entries(self) -> Entries:
        """Values that are known."""
        return self._entries.select(~self._entries.is_forgotten)

    def advance(self, window: int, keys: Keys, counts: Ints, ranks: Ints) -> tuple[Ints, Ints]:
        """Take in the values of a window, and give rows to those that are due one.

        keys: [k] ascending, distinct. counts: [k] rows of the window with each. ranks: [k] order in which they occur.
        Returns the row of each value in this window, -1 if it has none, and the rows that were another value's before.
        """
        self._forget(window)
        entries = self._entries
        places = entries.find_or_insert(keys, window)
        entries.counts[places] += counts
        entries.last_windows[places] = window
        is_due = (entries.rows[places] < 0) & (entries.counts[places] >= self._config.admit_after)
        due = np.flatnonzero(is_due)
        due = due[np.lexsort((ranks[due], -entries.counts[places[due]]))]
        rows, num_reused = self._find_rows(len(due), window)
        entries.rows[places[due[: len(rows)]]] = rows
        self._is_owned[rows] = True
        return entries.rows[places], np.sort(rows[:num_reused])

    def look_up(self, keys: Keys) -> Ints:
        """Return the row of each value, -1 if it has none."""
        places, is_there = self._entries.find(keys)
        rows = np.full(len(keys), _NO_ROW, dtype=np.int64)
        rows[is_there] = self._entries.rows[places[is_there]]
        return rows

    def _forget(self, window: int) -> None:
        """Forget values that were not seen for longer than they live, and free their rows."""
        entries, oldest = self._entries, self._find_oldest(window)
        if oldest is not None:
            old = np.flatnonzero(entries.last_windows < min(oldest, window - MIN_IDLE_WINDOWS + 1))
            rows = entries.rows[old]
            self._is_owned[rows[rows >= 0]] = False
            entries.forget(old)
        is_forgotten = entries.is_forgotten
        num_forgotten = np.count_nonzero(is_forgotten)
        waiting = np.flatnonzero((entries.rows < 0) & ~is_forgotten)
        if len(waiting) > MAX_WAITING_PER_ROW * self._bound:
            # The ones seen last stay, half as many.
            order = np.argsort(-entries.last_windows[waiting], kind="stable")
            entries.forget(waiting[order[MAX_WAITING_PER_ROW * self._bound // 2 :]])
        if num_forgotten > _MAX_FORGOTTEN_FRACTION * len(entries.keys):
            self._entries = self.entries

    def _find_oldest(self, window: int) -> int | None:
        """Find the first window whose values live at `window`; None if the values of every window do."""
        if self._ttl_windows is not None:
            return window - self._ttl_windows
        if self._config.ttl_days is None:
            return None
        assert self._clock is not None, "values live by time"
        return self._clock.find_oldest(window, self._config.ttl_days * DAY_SECONDS)

    @property
    def _bound(self) -> int:
        """Largest number of rows of values; a large number if there is no bound."""
        return 2**62 if self._config.max_rows is None else self._config.max_rows - FIRST_ROW

    def _find_rows(self, number: int, window: int) -> tuple[Ints, int]:
        """Find rows for so many values, or for fewer: rows that others have had, how many, and then new ones."""
        free = np.flatnonzero(~self._is_owned[FIRST_ROW:])[:number] + FIRST_ROW
        num_new = min(number - len(free), self._bound + FIRST_ROW - self.num_rows)
        evicted = self._evict(number - len(free) - num_new, window)
        new = np.arange(self.num_rows, self.num_rows + num_new, dtype=np.int64)
        self.num_rows += num_new
        self._is_owned = np.append(self._is_owned, np.zeros(num_new, dtype=np.bool_))
        return np.concatenate([free, evicted, new]), len(free) + len(evicted)

    def _evict(self, number: int, window: int) -> Ints:
        """Take the rows of so many values, or of fewer, that were not seen lately; return them."""
        if number <= 0:
            return np.empty(0, dtype=np.int64)
        entries = self._entries
        idle = np.flatnonzero((entries.rows >= 0) & (entries.last_windows <= window - MIN_IDLE_WINDOWS))
        by_use = entries.last_windows[idle], entries.counts[idle]
        first, second = by_use if self._config.evict == "lru" else by_use[::-1]
        if number < len(idle):
            # Few of many: all that tie with the last of them, and then these in order.
            some = np.flatnonzero(first <= np.partition(first, number - 1)[number - 1])
            idle, first, second = idle[some], first[some], second[some]
        chosen = idle[np.lexsort((entries.rows[idle], second, first))[:number]]
        rows = entries.rows[chosen]
        entries.forget(chosen)
        self._is_owned[rows] = False
        return rows
