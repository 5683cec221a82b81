"""How many files a process may have open."""

import os
import resource

_SPARE = 256
"""Files that whatever runs beside may open meanwhile."""


def allow_files(num_files: int) -> None:
    """Raise this process's limit, as far as it may, so that so many more files can be open: each mapping holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + num_files + _SPARE  # noqa: PTH208
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
