"""Memory of processes."""

from pathlib import Path

import psutil

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def tree_memory_bytes(process: psutil.Process) -> int:
    """Sum up the proportional set sizes of `process` and all below it: pages that they share count once.

    A process that is gone meanwhile counts 0.
    """
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(_pss_bytes(member) for member in tree)


def peak_memory_bytes() -> int:
    """Return the most memory that this process has taken; `getrusage` would count that of its parent at the start."""
    return _status_bytes("VmHWM")


def bytes_below_peak() -> int:
    """Return how much less this process holds now than at its peak since `forget_peak`; 0 where the system hides it."""
    try:
        return max(0, _status_bytes("VmHWM") - _status_bytes("VmRSS"))
    except (OSError, KeyError):
        return 0


def forget_peak() -> None:
    """Count the peak of this process from now on; where the system does not allow that, it stays as it is."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return


def _status_bytes(name: str) -> int:
    lines = (line.partition(":") for line in _STATUS.read_text().splitlines())
    return int({key: value for key, _, value in lines}[name].split()[0]) * 1024


def _pss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0
