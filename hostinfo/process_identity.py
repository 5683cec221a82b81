"""Identity of a process that outlives its number: whether another process of the same machine has ended."""

import os
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_STATE, _START = 3, 22
"""Numbers of two fields in /proc/PID/stat, counted from 1."""
_NUM_BEFORE_NAME_ENDS = 2


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, among the processes of all machines."""

    space: str
    """Name of the process numbers of one boot of one machine, or of one container; empty if it is not known."""
    pid: int
    start_ticks: int
    """Time at which the process began, in ticks since the boot: no setting of a clock changes it."""

    @classmethod
    def of_self(cls) -> "ProcessIdentity":
        """Return the identity of this process."""
        return cls.of_process(os.getpid())

    @classmethod
    def of_process(cls, pid: int) -> "ProcessIdentity":
        """Return the identity of a process of this machine, which is running. Raises OSError."""
        try:
            space = f"{_BOOT_ID.read_text().strip()}/{_NAMESPACE.stat().st_ino}"
        except OSError:
            space = ""
        return cls(space, pid, int(_read_stat(pid)[_START]) if space else 0)

    def is_known_to_have_ended(self) -> bool:
        """Whether the process has certainly ended; False where that cannot be seen from here."""
        if not self.space or self.space != ProcessIdentity.of_self().space:
            return False
        try:
            stat = _read_stat(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            # Those of other users may be hidden.
            return not _exists(self.pid)
        except OSError:
            return False
        return int(stat[_START]) != self.start_ticks or stat[_STATE] in ("Z", "X")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _read_stat(pid: int) -> dict[int, str]:
    """Return the fields of /proc/PID/stat behind the name of the program, by their numbers. Raises OSError."""
    # The name may contain spaces and parentheses.
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
    return dict(enumerate(text.split(), start=_NUM_BEFORE_NAME_ENDS + 1))
