"""Cores, memory, GPUs and instructions of this machine, within the limits of this process's cgroup (a container's)."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
CPUINFO = Path("/proc/cpuinfo")
_LISTS, _BF16 = ("flags", "Features"), {"avx512_bf16", "amx_bf16", "bf16"}
"""Names of the lines with lists of instructions, on x86 and on Arm, and of the instructions that multiply in bf16."""
NVIDIA_SMI_SECONDS = 10.0
"""Seconds to wait for the driver; without an answer there are no GPUs."""


def count_cores() -> int:
    """Count the cores that this process may run on, at most as many as its cgroup grants."""
    found = len(os.sched_getaffinity(0))
    for directory in _list_cgroups():
        # In one file, or in two of version 1.
        names = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
        for quota in ([word for name in files for word in _read_words(directory / name)] for files in names):
            # Without a limit it is "max", or -1.
            if len(quota) == 2 and quota[0].isdigit():
                found = min(found, max(1, int(quota[0]) // int(quota[1])))
    return found


def get_memory_bytes() -> int:
    """Return the machine's memory, at most the limit of this process's cgroup, version 1 or 2."""
    # Containers of LXC show their own limit in this file alone.
    _, kib, *_ = _read_words(Path("/proc/meminfo"))
    limits = [int(kib) * 1024]
    for directory in _list_cgroups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += [int(word) for word in _read_words(directory / name) if word.isdigit()]
    return min(limits)


def count_gpus() -> int:
    """Count the NVIDIA devices of this machine."""
    return sum(1 for path in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))


@cache
def get_gpu_memory_bytes() -> tuple[int, ...]:
    """Return the memory of every NVIDIA GPU of this machine, as its driver reports it; without a driver none."""
    return tuple(int(line) * 2**20 for line in query_gpus("memory.total") if line.isdigit())


def query_gpus(field: str) -> list[str]:
    """Return a field of every NVIDIA GPU of this machine, such as its name; without a driver none."""
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=NVIDIA_SMI_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.splitlines()]


def read_processor_name() -> str:
    """Return the name of the processor, or else of its architecture."""
    try:
        found = re.search(r"^model name\s*:\s*(.*)$", CPUINFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else os.uname().machine


def has_bf16_products() -> bool | None:
    """Whether the processor has instructions for products in bf16; None if the system does not say."""
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return None
    fields = (line.partition(":") for line in lines)
    words = next((words for name, _, words in fields if name.strip() in _LISTS), None)
    return None if words is None else not _BF16.isdisjoint(words.split())


def _list_cgroups() -> list[Path]:
    """List the directories of this process's cgroups and of all their parents: every limit holds."""
    directories: set[Path] = set()
    for line in _read_lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        base = CGROUPS / controllers if controllers else CGROUPS
        own = base / path.lstrip("/")
        directories |= {own, *(parent for parent in own.parents if parent.is_relative_to(base))}
    return sorted(directories)


def _read_words(path: Path) -> list[str]:
    return [word for line in _read_lines(path) for word in line.split()]


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
