"""What this machine offers, measured: the limits of this process's container count."""

import os
import re
from pathlib import Path

import psutil

_CGROUPS = Path("/sys/fs/cgroup")


def measured_num_cores() -> int:
    """Cores this process may run on, and no more than its cgroup grants."""
    num_cores = len(os.sched_getaffinity(0))
    for directory in _own_cgroups():
        quota = _read_words(directory / "cpu.max")
        if len(quota) == 2 and quota[0] != "max":
            num_cores = min(num_cores, max(1, int(quota[0]) // int(quota[1])))
    return num_cores


def measured_memory_bytes() -> int:
    """The machine's memory, and no more than the limit of this process's cgroup."""
    limits = [int(psutil.virtual_memory().total)]
    for directory in _own_cgroups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += [int(word) for word in _read_words(directory / name) if word.isdigit()]
    return min(limits)


def measured_num_gpus() -> int:
    """NVIDIA devices of this machine."""
    return sum(1 for path in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))


def _own_cgroups() -> list[Path]:
    """Directories of this process's cgroups, versions 1 and 2, each with all above it: every limit holds."""
    directories: set[Path] = set()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        base = _CGROUPS / controllers if controllers else _CGROUPS
        own = base / path.lstrip("/")
        directories |= {own, *(parent for parent in own.parents if parent.is_relative_to(base))}
    return sorted(directories)


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
