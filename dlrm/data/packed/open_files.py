"""The limit on the open files of this process."""

import os
import resource

_SPARE = 256
"""Number of further files that other code of this process may open meanwhile."""


def allow_open_files(num_files: int) -> None:
    """Increase the limit by what `num_files` more open files need, as far as allowed: each mapping keeps one open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + num_files + _SPARE  # noqa: PTH208
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and limit > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
