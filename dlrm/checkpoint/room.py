"""Whether the job's memory has room for a copy of its state."""

from pathlib import Path

import psutil

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def free_bytes(memory_bytes: int) -> int:
    """What the processes of this node, counted as the service counts them, leave of the job's `memory_bytes` now.

    They are the launch process, which is this one's parent, and all below it; shared pages count once.
    """
    launch = psutil.Process().parent()
    if launch is None:
        return 0
    return memory_bytes - sum(_pss_bytes(process) for process in [launch, *launch.children(recursive=True)])


def bytes_beyond_now() -> int:
    """What this process has held at most, since its peak was forgotten, beyond what it holds now.

    Between two steps it holds least. 0 where the system does not tell.
    """
    try:
        sizes = {name: value for name, _, value in (line.partition(":") for line in _STATUS.read_text().splitlines())}
        return max(0, _kib(sizes["VmHWM"]) - _kib(sizes["VmRSS"])) * 1024
    except (OSError, KeyError):
        return 0


def forget_peak() -> None:
    """Count the peak anew: a copy that is gone belongs to no step."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        # It then counts for longer than it should, and training waits where it need not.
        return


def _kib(value: str) -> int:
    return int(value.split()[0])


def _pss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0
