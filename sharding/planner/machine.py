"""The speeds of this machine, measured once.

The speeds are kept in a file, `machine.json` in `$XDG_CACHE_HOME/dlrm` (`~/.cache/dlrm`), by the processor, the number
of cores and the version of torch that they were measured with.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from hostinfo.file_lock import wait_for_lock
from hostinfo.limits import count_cores, read_processor_name

MAX_MEASURING_SECONDS = 60.0
"""Seconds after which a measurement is given up, and speeds are assumed."""

Speed = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Speeds:
    """Speeds of a machine, in bytes or floating-point operations a second."""

    one_copy: Speed
    """Memory bandwidth of one core alone, bytes read and written."""
    all_copies: Speed
    """Memory bandwidth of all cores together, bytes read and written."""
    loopback: Speed
    """Bandwidth from one process of the machine to another, over TCP."""
    flops: Speed | None
    """Speed of one core in fp32 matrix products of the dense part; None if torch is not installed."""
    flops_bf16: Speed | None
    is_measured: bool = True
    """Whether the speeds were measured; else they are assumed."""


ASSUMED_SPEEDS = Speeds(one_copy=2e10, all_copies=4e10, loopback=2e9, flops=1e11, flops_bf16=2e11, is_measured=False)
"""Speeds of a core or two of a server, for machines where speeds cannot be measured or kept: without a file every
process would measure other speeds and make another plan."""
SPEEDS_BY_KEY = TypeAdapter(dict[str, Speeds])
SPEEDS = TypeAdapter(Speeds)


def load_speeds(directory: Path | None = None) -> Speeds:
    """Return the speeds of this machine; the first process that calls this measures them, others wait for it.

    directory: directory of the file; the user's cache by default. If it cannot be written, or a measurement fails,
    speeds are assumed, and nothing is kept.
    """
    key = f"{read_processor_name()}, {count_cores()} cores, torch {_get_torch_version()}"
    try:
        path = (directory or _get_cache_directory()) / "machine.json"
        if (cached := _read_speeds(path).get(key)) is not None:
            return cached
        path.parent.mkdir(parents=True, exist_ok=True)
        with _hold_lock(path.with_suffix(".lock")):
            # Read again: another process may have measured while this one waited for the lock.
            all_speeds = _read_speeds(path)
            if (cached := all_speeds.get(key)) is not None:
                return cached
            measured = measure_speeds()
            if measured.is_measured:
                _replace_file(path, SPEEDS_BY_KEY.dump_json({**all_speeds, key: measured}, indent=1))
            return measured
    except (OSError, RuntimeError):  # the latter where the user has no home directory
        return ASSUMED_SPEEDS


def measure_speeds() -> Speeds:
    """Measure in a child process, for about a second and the import of torch; assume speeds where that fails."""
    command = [sys.executable, "-m", "sharding.planner.measure", str(count_cores())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAX_MEASURING_SECONDS, check=True)
        return SPEEDS.validate_json(done.stdout)
    except (subprocess.SubprocessError, ValidationError):
        return ASSUMED_SPEEDS


def _get_cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dlrm"


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _read_speeds(path: Path) -> dict[str, Speeds]:
    """Return the speeds in the file by key; none if it is missing or damaged: every speed is above 0."""
    try:
        return SPEEDS_BY_KEY.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}


def _replace_file(path: Path, content: bytes) -> None:
    """Replace the file at once: a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.write_bytes(content)
    temporary.replace(path)


def _get_torch_version() -> str:
    """Return the version of torch, on which the speed of matrix products depends; "none" if it is missing."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"
