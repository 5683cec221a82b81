"""Memory that all ranks of one machine map and that lies in a file: the kernel reads and writes its pages."""

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
_PAGEMAP = Path("/proc/self/pagemap")
_ENTRY_BYTES = 8
_PRESENT_BIT = np.uint64(63)
"""Bit of an entry that says that the page is mapped (Documentation/admin-guide/mm/pagemap.rst of Linux)."""
PAGES_AT_ONCE = 1 << 20
"""Pages whose entries are in memory at the same time, 8 MiB."""


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

    def drop(self, first_page: int, num_pages: int) -> None:
        """Drop pages from the machine's memory as far as no process maps them, and start to write those that have
        changed."""
        os.posix_fadvise(self._descriptor, first_page * PAGE_BYTES, num_pages * PAGE_BYTES, os.POSIX_FADV_DONTNEED)

    def find_mapped_pages(self) -> NDArray[np.int64]:
        """Return the numbers of the pages that this process has mapped, in ascending order."""
        first_entry = self.view_tensor(torch.uint8, (1,)).data_ptr() // PAGE_BYTES
        found: list[NDArray[np.int64]] = []
        with _PAGEMAP.open("rb", buffering=0) as file:
            for start in range(0, self.num_pages, PAGES_AT_ONCE):
                num_pages = min(PAGES_AT_ONCE, self.num_pages - start)
                content = os.pread(file.fileno(), num_pages * _ENTRY_BYTES, (first_entry + start) * _ENTRY_BYTES)
                found.append(np.flatnonzero(np.frombuffer(content, dtype=np.uint64) >> _PRESENT_BIT) + start)
        return np.concatenate(found)
