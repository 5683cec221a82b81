"""An array in a file, mapped into memory."""

import ctypes
import errno
import mmap
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.config import format_count
from dlrm.data.errors import DataError
from dlrm.data.rows import Runs

_LIBC = ctypes.CDLL(None, use_errno=True)
"""The C library; calls of its functions release Python's lock."""
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_ADVICE_BYTES = 1 << 17
"""Bytes per call of madvise(MADV_WILLNEED): on most disks the kernel reads no more ahead on one call."""


class MappedArray:
    """An array in one file; the kernel reads its pages when they are accessed."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], listed_bytes: int | None) -> None:
        """Map the file at `path`, which is row-major.

        listed_bytes: size of the file in meta.json; None if the file is not listed there. Raises DataError if the
        file cannot be opened, or if its size differs from `listed_bytes` or does not fit `shape`.
        """
        num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        try:
            with path.open("rb") as file:
                self.num_bytes = path.stat().st_size
                if not self.num_bytes == num_bytes == listed_bytes:
                    valid = f"{num_bytes:,}, as its meta.json says; prepare the data again"
                    raise DataError(f"has {format_count(self.num_bytes, 'byte')}", path, valid=valid)
                # An empty file cannot be mapped.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if num_bytes else None
        except OSError as error:
            if error.errno == errno.EMFILE:
                message = "cannot be opened in addition to the others: too many files are open"
                valid = "fewer multi-hot columns, or a higher limit: `ulimit -n`"
                raise DataError(message, path, valid=valid) from None
            valid = "a file that `dlrm prepare` has written"
            raise DataError(f"not readable: {error.strerror}", path, valid=valid) from None
        self._announced: set[tuple[int, int]] = set()
        """Byte ranges [start, end) of the rows that the last call of `read_ahead` named."""
        self.items: NDArray[Any] = np.frombuffer(self._map or b"", dtype=dtype).reshape(shape)
        self._address = self.items.ctypes.data

    def drop_pages(self) -> None:
        """Release every page from the memory of this process; the kernel may keep the pages in its page cache."""
        if self._map is not None:
            self._advise(mmap.MADV_DONTNEED, 0, self.num_bytes)

    def read_ahead(self, now: Runs, soon: Runs, max_areas: int) -> None:
        """Make the kernel fetch these rows from disk, without waiting and without mapping them.

        Ranges that the previous call named are not fetched again. Each range of `now` becomes a memory area of its own
        (by MADV_RANDOM), because an access to a row maps the whole folio around it, up to 2 MiB, unless the area is
        smaller (Linux 6.18); for the runs of a window this would map several times the rows that are read. If `now`
        has more than `max_areas` ranges, no areas are made and the larger mapping is accepted.
        """
        if self._map is None:
            return
        current = self._list_areas(now)
        self._advise(mmap.MADV_NORMAL, 0, self.num_bytes)
        if len(current) <= max_areas:
            for start, end in sorted(current):
                self._advise(mmap.MADV_RANDOM, start, end - start)
        announced = current | self._list_areas(soon)
        for start, end in sorted(announced - self._announced):
            for offset in range(start, end, _ADVICE_BYTES):
                self._advise(mmap.MADV_WILLNEED, offset, min(_ADVICE_BYTES, end - offset))
        self._announced = announced

    def _advise(self, advice: int, start: int, num_bytes: int) -> None:
        """Advise the kernel how these bytes are used.

        `mmap.madvise` would hold Python's lock, and a window takes thousands of calls: training would hardly go on.
        """
        if _LIBC.madvise(self._address + start, num_bytes, advice):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _list_areas(self, rows: Runs) -> set[tuple[int, int]]:
        """List the byte ranges [start, end) of these rows, each extended down to the start of its first page."""
        row_bytes = self.items.strides[0]
        starts = (rows.starts * row_bytes // mmap.PAGESIZE * mmap.PAGESIZE).tolist()
        areas = zip(starts, (rows.ends * row_bytes).tolist(), strict=True)
        return {(start, end) for start, end in areas if start < end}


_SPARE = 256
"""Number of further files that other code of this process may open meanwhile."""


def allow_open_files(num_files: int) -> None:
    """Increase the limit by what `num_files` more open files need, as far as allowed: each mapping keeps one open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + num_files + _SPARE  # noqa: PTH208
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
