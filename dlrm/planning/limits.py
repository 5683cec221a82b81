"""What the planning of one job may take where others share the machine."""

import resource
import sys
from pathlib import Path

FIRST_TO_GO = "1000"


def limit_memory(num_bytes: int) -> None:
    """Let this process have so many bytes beyond what it has: more is a MemoryError.

    Where the machine is short of memory all the same, the kernel ends this process before others. On Linux alone.
    """
    if sys.platform != "linux":
        return
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = num_pages * resource.getpagesize() + num_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)
