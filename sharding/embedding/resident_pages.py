"""Bound on the memory that tables in mapped files take, and the reading ahead of rows.

For each page of a file all ranks share the number of the last batch that named a row in it. Pages of the next batch are
read while the present one trains. If more are in use than the bound allows, the owner of the file drops the pages of
the longest unused batches (LRU, by batches); changed pages are written before. Rows that every batch names stay. A page
that was dropped too early is read again by whoever needs it: nothing here can change a result.

Ranks unmap all pages with every batch. They stay in the machine's memory, so that the next access costs a minor fault;
only unmapped pages can be dropped.
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
"""Share of the bound that stays in use when pages are dropped: the next search for old ones is then far."""
_STATM = Path("/proc/self/statm")
_NO_PAGES = np.empty(0, dtype=np.int64)

Rows = Sequence[NDArray[np.int64]]
"""Ids by feature."""


@dataclass(frozen=True)
class RowPlace:
    """The place of consecutive rows of a table, or of the optimizer's state for them."""

    feature: int
    """Number of the table, and of the feature that reads it."""
    first_row: int
    num_rows: int
    first_byte: int
    """First byte in the file."""
    row_bytes: int

    def find_pages(self, rows: Rows) -> list[NDArray[np.int64]]:
        """Return the pages of the file with these rows, repeated and in any order; rows of other shards have none."""
        local = rows[self.feature] - self.first_row
        local = local[(local >= 0) & (local < self.num_rows)]
        first_bytes = local * self.row_bytes + self.first_byte
        first, last = first_bytes // PAGE_BYTES, (first_bytes + self.row_bytes - 1) // PAGE_BYTES
        # A row may begin in one page and end in another.
        most = int((last - first).max(initial=-1))
        return [np.minimum(first + number, last) for number in range(most + 1)]


@dataclass(frozen=True)
class PagedFile:
    """A mapped file, what lies in it, and how its pages are used."""

    file: MappedFile
    places: Sequence[RowPlace]
    last_use: NDArray[np.int32]
    """[pages] number of the last batch that named the page; 0: none since it was dropped. All ranks share it."""

    def use(self, rows: Rows, batch: int) -> NDArray[np.int64]:
        """Mark the pages of these rows as used by a batch, and return those that were not in use, in ascending
        order."""
        found = [_NO_PAGES, *(pages for place in self.places for pages in place.find_pages(rows))]
        pages = np.concatenate(found)
        missing = np.unique(pages[self.last_use[pages] == 0])
        self.last_use[pages] = batch
        return missing


class ResidentPages:
    """The pages of all ranks' files, as one rank uses them and looks after its own."""

    def __init__(self, files: Sequence[PagedFile], own: int, max_bytes: int) -> None:
        """Begin with no page in use.

        own: number of this rank's file. max_bytes: bound on the bytes of this file in the machine's memory, and on the
        mapped bytes of this process.
        """
        self._files, self._own, self._max_pages = files, files[own], max(1, max_bytes // PAGE_BYTES)
        self._batch = 0
        self._other_pages = _count_shared_pages()
        """Shared pages of this process that are of other files: libraries, rows, buffers."""
        self._writer = BackgroundThread("page writer")
        self._written = self._writer.submit(lambda: None)
        trim = weakref.WeakMethod(self._trim_if_over)
        self._thread = BackgroundThread("table pages", lambda: _call(trim), CHECK_SECONDS)
        self._thread.submit(lambda: None)

    def read_ahead(self, rows: Rows) -> Future[None]:
        """Start to read the rows of the next batch; the future is done once all of them are on their way."""
        return self._thread.submit(partial(self._read_ahead, rows))

    def _read_ahead(self, rows: Rows) -> None:
        # Changed pages leave no faster than the disk takes them: more must not come in meanwhile.
        self._written.result()
        self._batch += 1
        missing = [paged.use(rows, self._batch) for paged in self._files]
        self._trim()
        for paged, pages in zip(self._files, missing, strict=True):
            for first_page, num_pages in _list_ranges(pages):
                paged.file.read_ahead(first_page, num_pages)

    def _trim_if_over(self) -> None:
        if self._is_over():
            self._trim()

    def _is_over(self) -> bool:
        """Whether this process has mapped more pages of tables than the bound allows."""
        return _count_shared_pages() - self._other_pages > self._max_pages

    def _trim(self) -> None:
        """Unmap all pages; if too many are in memory, drop the least recently used ones of this rank's file."""
        is_over = self._is_over()
        for paged in self._files:
            paged.file.unmap()
        self._other_pages = _count_shared_pages()
        # A copy: other ranks write it meanwhile.
        last_use = self._own.last_use.copy()
        used = np.flatnonzero(last_use)
        if not is_over and len(used) <= self._max_pages:
            return
        num_over = len(used) - int(KEPT_SHARE * self._max_pages)
        if num_over > 0:
            self._own.last_use[used[np.argpartition(last_use[used], num_over - 1)[:num_over]]] = 0
        # Pages without use are in memory too: of weights that were drawn or saved, and those that were not written yet.
        cached = self._own.file.find_cached_pages()
        unused = cached[self._own.last_use[cached] == 0]
        self._written = self._writer.submit(partial(_drop, self._own.file, unused))


def _drop(file: MappedFile, pages: NDArray[np.int64]) -> None:
    """Drop pages, and then begin to write all that have changed: the next ones to be dropped are written by then."""
    for first_page, num_pages in _list_ranges(pages):
        file.drop(first_page, num_pages)
    file.start_writing()


def _list_ranges(pages: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """List ascending page numbers as ranges: the first page, and the number of pages."""
    # A range begins where a page does not follow the one before it.
    begins = np.flatnonzero(np.diff(pages, prepend=-2) != 1)
    lengths = np.diff(begins, append=len(pages))
    return zip(pages[begins].tolist(), lengths.tolist(), strict=True)


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
