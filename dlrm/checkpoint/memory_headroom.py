"""Free part of a job's memory."""

import psutil

from hostinfo.process_memory import get_tree_memory_bytes


def count_free_bytes(memory_bytes: int) -> int:
    """Return how many of `memory_bytes` the job's processes on this node leave free, counted as the service counts
    them near their limit.

    These processes are the launch process, which is the parent of this one, and all its descendants. Returns 0 where
    there is no parent.
    """
    launch = psutil.Process().parent()
    used = get_tree_memory_bytes(launch) if launch else 0
    # 0: the launch process has just ended, so that nothing is known about the job's memory.
    return memory_bytes - used if used else 0
