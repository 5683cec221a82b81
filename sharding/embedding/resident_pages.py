"""Bound on the memory that tables in mapped files take, and the reading ahead of rows.

Every rank keeps, for each page of the tables, the last batch that named a row in it. Pages of the next batch are read
while the present one trains; if more pages are in use than the bound allows, those that were used longest ago are taken
out of the process and written (LRU, by batches). Rows that every batch names stay. A page that was dropped too early is
read again by whoever needs it: nothing here can change a result.
"""

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sharding.comm.mapped_file import PAGE_BYTES, MappedFile
from sharding.embedding.background_thread import BackgroundThread

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.05
"""Seconds between two looks at the memory while no batch is read: initial weights and checkpoints pass through it."""
KEPT_SHARE = 7 / 8
"""Share of the bound that is left in use: the next few pages then need no new search for old ones."""
_STATM = Path("/proc/self/statm")

Rows = Sequence[NDArray[np.int64]]
"""Ids by feature."""


@dataclass(frozen=True)
class RowPlace:
    """The place of consecutive rows of a table, or of the optimizer's state for them."""

    feature: int
    """Number of the table, and of the feature that reads it."""
    first_row: int
    num_rows: int
    file: int
    """Number of the file."""
    first_byte: int
    row_bytes: int


class ResidentPages:
    """The pages of mapped files as one process uses them."""

    def __init__(
        self, files: Sequence[MappedFile], places: Sequence[RowPlace], own: Sequence[RowPlace], max_bytes: int
    ) -> None:
        """Begin with no page in use.

        places: where the rows of all shards are. own: where those are that this rank updates. max_bytes: bound on the
        bytes of tables that this process has in use.
        """
        self._files, self._places, self._own = files, places, own
        self._max_pages = max(1, max_bytes // PAGE_BYTES)
        counts = [file.num_pages for file in files]
        self._first_pages = np.cumsum([0, *counts])
        """[files + 1] number of each file's first page among all pages, and the number of pages."""
        self._last_use = np.zeros(sum(counts), dtype=np.int32)
        """[pages] number of the last batch that named the page; 0: none since it was dropped."""
        self._batch = 0
        self._num_used = 0
        self._other_pages = _count_shared_pages()
        """Shared pages of the process that are of other files: libraries, rows, buffers."""
        trim = weakref.WeakMethod(self._trim_if_over)
        self._thread = BackgroundThread("table pages", lambda: _call(trim), CHECK_SECONDS)
        self._writer = BackgroundThread("page writer")
        self._written = self._writer.submit(lambda: None)
        self._thread.submit(lambda: None)

    def read_ahead(self, rows: Rows) -> Future[None]:
        """Start to read the rows of the next batch; the future is done once all of them are on their way."""
        return self._thread.submit(partial(self._read_ahead, rows))

    def note_updated(self, rows: Rows) -> None:
        """Note rows that another rank has read and this one updates."""
        self._thread.submit(lambda: self._use(self._find_pages(rows, self._own)))

    def _read_ahead(self, rows: Rows) -> None:
        # Changed pages leave no faster than the disk takes them: more must not come in meanwhile.
        self._written.result()
        self._batch += 1
        missing = self._use(self._find_pages(rows, self._places))
        self._trim_if_over()
        for file, first_page, num_pages in self._list_ranges(missing):
            file.read_ahead(first_page, num_pages)

    def _use(self, pages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Mark pages as used by the newest batch, and return those that were not in use, in ascending order."""
        missing = np.unique(pages[self._last_use[pages] == 0])
        self._last_use[pages] = self._batch
        self._num_used += len(missing)
        return missing

    def _find_pages(self, rows: Rows, places: Sequence[RowPlace]) -> NDArray[np.int64]:
        """Return the numbers of the pages with these rows, repeated and in any order."""
        found = [np.empty(0, dtype=np.int64)]
        for place in places:
            local = rows[place.feature] - place.first_row
            local = local[(local >= 0) & (local < place.num_rows)]
            first_bytes = local * place.row_bytes + place.first_byte
            first, last = first_bytes // PAGE_BYTES, (first_bytes + place.row_bytes - 1) // PAGE_BYTES
            most = int((last - first).max(initial=-1))
            found += [np.minimum(first + number, last) + self._first_pages[place.file] for number in range(most + 1)]
        return np.concatenate(found)

    def _trim_if_over(self) -> None:
        if max(self._num_used, _count_shared_pages() - self._other_pages) > self._max_pages:
            self._trim()

    def _trim(self) -> None:
        """Drop the pages that were used longest ago, so that KEPT_SHARE of the bound is left."""
        mapped = np.concatenate(
            [file.find_mapped_pages() + first for file, first in zip(self._files, self._first_pages, strict=False)]
        )
        held = np.union1d(np.flatnonzero(self._last_use), mapped)
        num_over = len(held) - int(self._max_pages * KEPT_SHARE)
        if num_over > 0:
            oldest = np.sort(held[np.argpartition(self._last_use[held], num_over - 1)[:num_over]])
            ranges = list(self._list_ranges(oldest))
            for file, first_page, num_pages in ranges:
                file.unmap(first_page, num_pages)
            self._last_use[oldest] = 0
            self._written = self._writer.submit(partial(_drop, ranges))
            mapped = np.setdiff1d(mapped, oldest, assume_unique=True)
        self._num_used = int(np.count_nonzero(self._last_use))
        self._other_pages = _count_shared_pages() - len(mapped)

    def _list_ranges(self, pages: NDArray[np.int64]) -> Iterator[tuple[MappedFile, int, int]]:
        """List ascending page numbers as ranges: a file, the first page in it, and the number of pages."""
        for file, start, end in zip(self._files, self._first_pages, self._first_pages[1:], strict=False):
            of_file = pages[np.searchsorted(pages, start) : np.searchsorted(pages, end)] - start
            # A range begins where a page does not follow the one before it.
            begins = np.flatnonzero(np.diff(of_file, prepend=-2) != 1)
            lengths = np.diff(begins, append=len(of_file))
            for first_page, num_pages in zip(of_file[begins].tolist(), lengths.tolist(), strict=True):
                yield file, first_page, num_pages


def _drop(ranges: Sequence[tuple[MappedFile, int, int]]) -> None:
    for file, first_page, num_pages in ranges:
        file.drop(first_page, num_pages)


def _call(method_reference: "weakref.WeakMethod[Callable[[], None]]") -> None:
    if (method := method_reference()) is None:
        return
    try:
        method()
    except Exception:
        # The next batch meets it too, and raises it where it is seen.
        log.exception("pages of tables could not be dropped")


def _count_shared_pages() -> int:
    """Count the pages of files and shared memory that this process has mapped."""
    return int(_STATM.read_text().split()[2])
