"""How much of a job's memory is free."""

import psutil

from hostinfo.process_memory import tree_memory_bytes


def free_bytes(memory_bytes: int) -> int:
    """Return what the job's processes on this node leave of its `memory_bytes`, counted as the service counts them.

    They are the launch process, which is this one's parent, and all below it.
    """
    launch = psutil.Process().parent()
    return 0 if launch is None else memory_bytes - tree_memory_bytes(launch)
