"""Peak memory of a process."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of one process, without the files of its libraries; on a GPU the peak of torch's tensors there.

    An upper bound: file pages that the kernel has reclaimed since the peak still count.
    """

    own_bytes: int
    """Peak bytes of anonymous memory and of the process's proportional share of shared memory; on a GPU of tensors."""
    mapped_bytes: int
    """Peak bytes of anonymous memory and of shared memory, counted in full; on a GPU those that torch has reserved."""


def measure_peak_memory() -> PeakMemory:
    """Return the peak memory of this process since its start; its share of shared memory is the present one."""
    fields: dict[str, int] = {}
    for file in ("status", "smaps_rollup"):
        lines = Path(f"/proc/self/{file}").read_text().splitlines()
        pairs = (line.partition(":") for line in lines)
        fields |= {name: int(value.split()[0]) * 1024 for name, _, value in pairs if value.endswith("kB")}
    mapped_bytes = fields["VmHWM"] - fields["RssFile"]
    return PeakMemory(mapped_bytes - (fields["RssShmem"] - fields["Pss_Shmem"]), mapped_bytes)
