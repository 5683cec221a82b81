"""Control groups of containers: their limits of memory and of cores."""

import itertools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
CPU_PERIOD_MICROSECONDS = 100_000
REMOVAL_SECONDS = 10.0
_numbers = itertools.count()


@dataclass(frozen=True)
class Cgroup:
    """Control group of one container."""

    directories: dict[str, Path]
    """Directories by the place where the container sees them."""

    def list_processes(self) -> list[int]:
        """List the processes in the group, by their numbers outside of the container."""
        path = next(iter(self.directories.values())) / "cgroup.procs"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def remove(self) -> None:
        """Remove the group, and kill what is left in it."""
        give_up_at = time.monotonic() + REMOVAL_SECONDS
        for path in self.directories.values():
            while path.exists():
                try:
                    path.rmdir()
                except OSError:
                    assert time.monotonic() < give_up_at, f"{path} still has processes: {self.list_processes()}"
                    for process in self.list_processes():
                        os.kill(process, signal.SIGKILL)
                    time.sleep(0.01)


def make_cgroup(memory_bytes: int, num_cores: float) -> Cgroup:
    """Make a control group; skip the test where this process may not."""
    name = f"dlrm-pod-{os.getpid()}-{next(_numbers)}"
    try:
        if (ROOT / "cgroup.controllers").exists():
            return _make_version_2(ROOT / name, memory_bytes, num_cores)
        return _make_version_1(name, memory_bytes, num_cores)
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")


def _make_version_1(name: str, memory_bytes: int, num_cores: float) -> Cgroup:
    made = Cgroup({f"{ROOT}/{one}": _find_own(one) / name for one in ("memory", "cpu")})
    for path in made.directories.values():
        path.mkdir()
    (made.directories[f"{ROOT}/memory"] / "memory.limit_in_bytes").write_text(str(memory_bytes))
    # Kernels without bandwidth control know shares alone.
    if (path := made.directories[f"{ROOT}/cpu"] / "cpu.cfs_quota_us").exists():
        path.write_text(str(int(num_cores * CPU_PERIOD_MICROSECONDS)))
    return made


def _make_version_2(path: Path, memory_bytes: int, num_cores: float) -> Cgroup:
    (ROOT / "cgroup.subtree_control").write_text("+memory +cpu")
    path.mkdir()
    (path / "memory.max").write_text(str(memory_bytes))
    if (swap := path / "memory.swap.max").exists():
        swap.write_text("0")
    (path / "cpu.max").write_text(f"{int(num_cores * CPU_PERIOD_MICROSECONDS)} {CPU_PERIOD_MICROSECONDS}")
    return Cgroup({str(ROOT): path})


def _find_own(controller: str) -> Path:
    """Find this process's group of version 1, below which others count against its own limits."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return ROOT / controllers / path.lstrip("/")
    raise FileNotFoundError(f"no {controller} among the control groups of this process")
