"""What this machine has: cores, memory within the limits of the cgroup, GPUs; and how fast it is, measured once.

Figures that take a measurement are kept in a file, `machine.json` in `$XDG_CACHE_HOME/dlrm` (`~/.cache/dlrm`), for the
processor, the number of cores and the version of torch that they were measured with.
"""

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

CGROUPS = Path("/sys/fs/cgroup")
MEASURING_SECONDS = 60.0
GPU_SECONDS = 10.0


Speed = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Speeds:
    """Bytes, or floating-point operations, a second."""

    one_copy: Speed
    """Memory that one core alone reads and writes."""
    all_copies: Speed
    """Memory that all cores together read and write."""
    loopback: Speed
    """From one process of this machine to another, over TCP."""
    flops: Speed | None
    """Of one core, fp32 matrix products of the dense part; None where torch is not installed."""
    flops_bf16: Speed | None
    is_measured: bool = True
    """Or assumed, since it could not be."""


ASSUMED = Speeds(one_copy=2e10, all_copies=4e10, loopback=2e9, flops=1e11, flops_bf16=2e11, is_measured=False)
"""Of a core or two of a server, where nothing can be measured, or kept: no two measurements are alike, and plans by
each would differ."""
KNOWN = TypeAdapter(dict[str, Speeds])
MEASURED = TypeAdapter(Speeds)


def num_cores() -> int:
    """That this process may run on, and no more than its cgroup grants."""
    found = len(os.sched_getaffinity(0))
    for directory in _own_cgroups():
        quota = _words(directory / "cpu.max")
        if len(quota) == 2 and quota[0] != "max":
            found = min(found, max(1, int(quota[0]) // int(quota[1])))
    return found


def memory_bytes() -> int:
    """Of the machine, and no more than the limit of this process's cgroup, version 1 or 2."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for directory in _own_cgroups():
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += [int(word) for word in _words(directory / name) if word.isdigit()]
    return min(limits)


@cache
def gpu_memory_bytes() -> tuple[int, ...]:
    """Of every NVIDIA GPU of this machine, as its driver tells; none where there is no driver."""
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=GPU_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(line) * 2**20 for line in said.split() if line.isdigit())


def speeds(directory: Path | None = None) -> Speeds:
    """Measured now, or by whoever was first on this machine: processes that ask at once wait for one of them.

    directory: where the file is; the user's cache by default. Where nothing can be written there, or a measurement
    fails, they are assumed; nothing is kept of that.
    """
    key = f"{_processor()}, {num_cores()} cores, torch {_torch_version()}"
    try:
        path = (directory or _cache_directory()) / "machine.json"
        if (known := _all_known(path).get(key)) is not None:
            return known
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_suffix(".lock")):
            all_known = _all_known(path)
            if (known := all_known.get(key)) is not None:
                return known
            measured = measure()
            if measured.is_measured:
                _write(path, KNOWN.dump_json({**all_known, key: measured}, indent=1))
            return measured
    except (OSError, RuntimeError):  # the latter where the user has no home directory
        return ASSUMED


def measure() -> Speeds:
    """Takes about a second, and the time that torch takes to be imported, in a child; assumed where that fails."""
    command = [sys.executable, "-m", "sharding.planner.measure", str(num_cores())]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=MEASURING_SECONDS, check=True).stdout
        return MEASURED.validate_json(said)
    except (subprocess.SubprocessError, ValidationError):
        return ASSUMED


def _cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dlrm"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _all_known(path: Path) -> dict[str, Speeds]:
    """Nothing where the file is not there, or is no longer what was written: every speed is above 0."""
    try:
        return KNOWN.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}


def _write(path: Path, content: bytes) -> None:
    """So that a reader never sees a part of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else os.uname().machine


def _torch_version() -> str:
    """Without it one figure is missing; with another version one may differ."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"


def _own_cgroups() -> list[Path]:
    """Directories of this process's cgroups, each with all above it: every limit holds."""
    directories: set[Path] = set()
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        base = CGROUPS / controllers if controllers else CGROUPS
        own = base / path.lstrip("/")
        directories |= {own, *(parent for parent in own.parents if parent.is_relative_to(base))}
    return sorted(directories)


def _words(path: Path) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
