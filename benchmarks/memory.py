"""What memory a process has taken."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Memory:
    """Of one process, without the files of its libraries; at most so much: pages of files that the kernel has taken
    back since the peak still count."""

    own_bytes: int
    """Most it has had: anonymous memory, and its share of what it shares with other processes."""
    mapped_bytes: int
    """The same, with shared memory in full."""


def peak_memory() -> Memory:
    """Of this process since its start; the share is today's."""
    fields: dict[str, int] = {}
    for file in ("status", "smaps_rollup"):
        lines = Path(f"/proc/self/{file}").read_text().splitlines()
        pairs = (line.partition(":") for line in lines)
        fields |= {name: int(value.split()[0]) * 1024 for name, _, value in pairs if value.endswith("kB")}
    mapped_bytes = fields["VmHWM"] - fields["RssFile"]
    return Memory(mapped_bytes - (fields["RssShmem"] - fields["Pss_Shmem"]), mapped_bytes)
