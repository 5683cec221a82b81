"""Memory of processes."""

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_OOM_SCORE, _MAX_OOM_SCORE = Path("/proc/self/oom_score_adj"), "1000"


def get_tree_memory_bytes(process: psutil.Process, exact_above: int = 0) -> int:
    """Return the memory of `process` and all its descendants in bytes: their proportional set sizes, in which shared
    pages count once.

    exact_above: a total of up to so many bytes may be too high: the sum of the resident set sizes, in which shared
    pages count for every process. These the kernel knows, while it looks through all pages for the proportional ones,
    which takes 12 ms a gigabyte. A process that has ended counts 0.
    """
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    bound = sum(_read_bytes(lambda member=member: member.memory_info().rss) for member in tree)
    if bound <= exact_above:
        return bound
    return sum(_read_bytes(lambda member=member: member.memory_full_info().pss) for member in tree)


def get_peak_memory_bytes() -> int:
    """Return the peak memory of this process; `getrusage` would count its parent's at the start."""
    return _read_status_bytes("VmHWM")


def get_bytes_below_peak() -> int:
    """Return the bytes by which this process is below its peak since `reset_peak`; 0 if the system hides them."""
    try:
        return max(0, _read_status_bytes("VmHWM") - _read_status_bytes("VmRSS"))
    except (OSError, KeyError):
        return 0


def end_first_when_memory_is_short() -> None:
    """Have the kernel end this process before others where memory is short; no effect on systems other than Linux."""
    if sys.platform == "linux":
        _OOM_SCORE.write_text(_MAX_OOM_SCORE)


def limit_memory(num_bytes: int) -> None:
    """Limit this process to `num_bytes` more than it has now; beyond that it gets a MemoryError.

    If the machine runs out of memory all the same, the kernel ends this process before others. Does nothing on
    systems other than Linux.
    """
    if sys.platform != "linux":
        return
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    max_bytes = num_pages * resource.getpagesize() + num_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard), hard)
    )
    end_first_when_memory_is_short()


def reset_peak() -> None:
    """Measure the peak of this process from now on; no effect where the system does not allow that."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return


def _read_status_bytes(name: str) -> int:
    lines = (line.partition(":") for line in _STATUS.read_text().splitlines())
    return int({key: value for key, _, value in lines}[name].split()[0]) * 1024


def _read_bytes(read: Callable[[], int]) -> int:
    """Return what `read` reads of a process; 0 if the process has ended."""
    try:
        return int(read())
    except psutil.Error:
        return 0
