"""Control group with a limit of memory, for a measurement."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryGroup:
    """Control group of version 1 or 2, below the group of this process."""

    path: Path

    def join(self) -> None:
        """Move this process into the group; what it starts is in it too."""
        (self.path / "cgroup.procs").write_text("0")

    def read_peak_bytes(self) -> int:
        """Read the most memory that the group has used, its pages of files included."""
        names = ("memory.max_usage_in_bytes", "memory.peak")
        return next(int((self.path / name).read_text()) for name in names if (self.path / name).exists())


@contextmanager
def make_memory_group(num_bytes: int) -> Iterator[MemoryGroup]:
    """Make a group that may use `num_bytes`, for the time of the block. Raises OSError if this needs more rights."""
    path = _find_own() / f"measurement-{os.getpid()}"
    path.mkdir()
    try:
        limit = next(name for name in ("memory.limit_in_bytes", "memory.max") if (path / name).exists())
        (path / limit).write_text(str(num_bytes))
        yield MemoryGroup(path)
    finally:
        path.rmdir()


def _find_own() -> Path:
    """Find the group of this process that counts its memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _ROOT / "memory" / path.lstrip("/")
    return _ROOT
