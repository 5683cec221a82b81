"""Instructions that the processor of this machine has."""

from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
_LISTS, _BF16 = ("flags", "Features"), {"avx512_bf16", "amx_bf16", "bf16"}
"""Names of the lines that list instructions, on x86 and on Arm, and of the instructions that multiply in bf16."""


def has_bf16_products() -> bool | None:
    """Whether the processor has instructions for products in bf16; None if the system does not say."""
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return None
    fields = (line.partition(":") for line in lines)
    words = next((words for name, _, words in fields if name.strip() in _LISTS), None)
    return None if words is None else not _BF16.isdisjoint(words.split())
