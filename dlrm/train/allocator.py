"""Settings of the C library's memory allocator."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's `mallopt`, from malloc.h."""
_LARGEST_KEPT_BYTES = 32 << 20
_MAX_KEPT_BYTES = 512 << 20


def keep_freed_memory() -> None:
    """Have this process keep what a chunk frees for the next chunk.

    glibc otherwise returns such blocks to the kernel, which clears every page of them before the next chunk can use
    them: a tenth of the time of the dense part. Blocks above 32 MiB are still returned, and so is everything above
    512 MiB. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, _MAX_KEPT_BYTES)
