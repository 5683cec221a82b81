"""Limits the memory of the planning process, not of a rank: other work shares the machine of the service."""

import resource
import sys
from pathlib import Path

from hostinfo.process_memory import end_first_when_memory_is_short


def limit_planning_memory(num_bytes: int) -> None:
    """Limit this process to `num_bytes` more than it has now; beyond that it gets a MemoryError.

    If the machine runs out of memory all the same, the kernel ends this process before others. Does nothing on
    systems other than Linux.
    """
    if sys.platform != "linux":
        return
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    max_bytes = num_pages * resource.getpagesize() + num_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard), hard)
    )
    end_first_when_memory_is_short()
