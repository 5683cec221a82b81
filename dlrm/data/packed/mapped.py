"""An array in a file, mapped into memory."""

import errno
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.data.errors import DataError
from dlrm.data.rows import Runs

_ADVICE_BYTES = 1 << 17
"""The kernel reads no more ahead on one piece of advice, on most disks."""


class MappedArray:
    """The items of one file, read when they are looked at."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], noted_bytes: int | None) -> None:
        """shape: row by row. noted_bytes: what the file should have. Raises DataError where it has other ones."""
        num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        try:
            with path.open("rb") as file:
                self.num_bytes = path.stat().st_size
                if not self.num_bytes == num_bytes == noted_bytes:
                    valid = f"{num_bytes:,}, as its meta.json says; prepare the data again"
                    raise DataError(f"has {self.num_bytes:,} bytes", path, valid=valid)
                # There is no mapping of nothing.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if num_bytes else None
        except OSError as error:
            if error.errno == errno.EMFILE:
                message = "cannot be opened beside the others: too many files are open"
                valid = "fewer multi-hot columns, or a higher limit: `ulimit -n`"
                raise DataError(message, path, valid=valid) from None
            valid = "a file that `dlrm prepare` has written"
            raise DataError(f"not readable: {error.strerror}", path, valid=valid) from None
        self._expected: set[tuple[int, int]] = set()
        """Bytes [first, stop) of the rows that were expected last."""
        self.items: NDArray[Any] = np.frombuffer(self._map or b"", dtype=dtype).reshape(shape)

    def let_go(self) -> None:
        """Unmap every page, so that it counts as nobody's memory; the kernel may keep it in its cache."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def expect(self, now: Runs, soon: Runs, max_areas: int) -> None:
        """Have the kernel fetch these rows from the disk, which maps nothing and waits for nothing.

        What the call before named is left out. The rows of `now` become areas of their own: a look at a row maps its
        whole folio, which may be 2 MiB, where the area is no smaller (Linux 6.18). Of the runs of a window that would
        be several times what is ever read. Where they would be more than `max_areas`, that is put up with.
        """
        if self._map is None:
            return
        of_now = self._areas(now)
        self._map.madvise(mmap.MADV_NORMAL)
        if len(of_now) <= max_areas:
            for first, stop in sorted(of_now):
                self._map.madvise(mmap.MADV_RANDOM, first, stop - first)
        expected = of_now | self._areas(soon)
        for first, stop in sorted(expected - self._expected):
            for place in range(first, stop, _ADVICE_BYTES):
                self._map.madvise(mmap.MADV_WILLNEED, place, min(_ADVICE_BYTES, stop - place))
        self._expected = expected

    def _areas(self, rows: Runs) -> set[tuple[int, int]]:
        """Bytes [first, stop) of these rows, from the page on in which they begin."""
        row_bytes = self.items.strides[0]
        firsts = (rows.starts * row_bytes // mmap.PAGESIZE * mmap.PAGESIZE).tolist()
        areas = zip(firsts, (rows.stops * row_bytes).tolist(), strict=True)
        return {(first, stop) for first, stop in areas if first < stop}
