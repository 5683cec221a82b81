"""Memory that all ranks of one machine map and that lies in a file: the kernel reads and writes its pages."""

import ctypes
import mmap
import os
import tempfile
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from sharding.comm.shared_memory import SharedBuffer

PAGE_BYTES = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE = 2
"""Flag of sync_file_range(2) that starts to write and does not wait."""
PAGES_AT_ONCE = 1 << 18
"""Pages that one call asks for: others wait for it, who map or unmap memory."""


class MappedFile(SharedBuffer):
    """Bytes of a file without a name: its space is freed when the last process that maps them has ended."""

    def __init__(self, descriptor: int) -> None:
        """Map an open file; see `SharedBuffer`. A fault then reads the page that it needs, and none around it."""
        super().__init__(descriptor)
        self._map.madvise(mmap.MADV_RANDOM)

    @classmethod
    def create_in(cls, directory: Path, num_bytes: int) -> Self:
        """Make a file of zeros in `directory`, with all of its space reserved: a page that found none would end the
        process. Raises OSError.
        """
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, max(num_bytes, PAGE_BYTES))
            return cls(os.dup(file.fileno()))

    @property
    def num_pages(self) -> int:
        return -(-len(self._map) // PAGE_BYTES)

    def read_ahead(self, first_page: int, num_pages: int) -> None:
        """Start to read pages into the machine's memory; returns at once."""
        os.posix_fadvise(self._descriptor, first_page * PAGE_BYTES, num_pages * PAGE_BYTES, os.POSIX_FADV_WILLNEED)

    def unmap(self) -> None:
        """Take all pages out of this process: they no longer count as its memory, and the next access finds them
        where the machine has them."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def start_writing(self) -> None:
        """Start to write all changed pages, in the order of the file. Raises OSError."""
        if _LIBC.sync_file_range(self._descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE):
            raise OSError(ctypes.get_errno(), "changed pages of tables cannot be written")

    def drop(self, first_page: int, num_pages: int) -> None:
        """Drop pages from the machine's memory, but those that a process has mapped or that must still be written.

        The latter are slow: the kernel begins to write each by itself, and looks for it on every core.
        """
        os.posix_fadvise(self._descriptor, first_page * PAGE_BYTES, num_pages * PAGE_BYTES, os.POSIX_FADV_DONTNEED)

    def find_cached_pages(self) -> NDArray[np.int64]:
        """Return the numbers of the pages that are in the machine's memory, in ascending order."""
        first = self.view_tensor(torch.uint8, (1,)).data_ptr()
        found: list[NDArray[np.int64]] = []
        is_cached = np.empty(PAGES_AT_ONCE, dtype=np.uint8)
        for start in range(0, self.num_pages, PAGES_AT_ONCE):
            num_pages = min(PAGES_AT_ONCE, self.num_pages - start)
            arguments = first + start * PAGE_BYTES, num_pages * PAGE_BYTES, is_cached.ctypes.data
            if _LIBC.mincore(*map(ctypes.c_void_p, arguments)):
                raise OSError(ctypes.get_errno(), "the pages in memory cannot be counted")
            # The other bits of the vector are undefined.
            found.append(np.flatnonzero(is_cached[:num_pages] & 1) + start)
        return np.concatenate(found)
