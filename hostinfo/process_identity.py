"""Identity of a process that outlives its number: whether another process of the same machine has ended."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_SAME_START_SECONDS = 2.0
"""Largest difference, in seconds, between two readings of when one process began."""


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, among those of all machines."""

    space: str
    """Name of the process numbers of one boot of one machine, or of one container; empty where it is not known."""
    pid: int
    started_at: float
    """Time at which the process began, in seconds since the epoch, by the clock of its machine."""

    @classmethod
    def of_self(cls) -> "ProcessIdentity":
        """Return the identity of this process."""
        try:
            space = f"{_BOOT_ID.read_text().strip()}/{_NAMESPACE.stat().st_ino}"
        except OSError:
            space = ""
        return cls(space, os.getpid(), psutil.Process().create_time())

    def is_known_to_have_ended(self) -> bool:
        """Whether the process has certainly ended; False where that cannot be seen from here."""
        if not self.space or self.space != ProcessIdentity.of_self().space:
            return False
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started_at) < _SAME_START_SECONDS
            return not is_same or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return False
