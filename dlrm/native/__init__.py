"""Own operators of the dense part on the CPU: the interaction. Built when the package is installed, by setup.py."""

from pathlib import Path

from sharding.native import load_library


def has_own_interaction() -> bool:
    """Whether `torch.ops.dlrm_dense` is there; plain torch serves instead where it could not be built."""
    return load_library("interaction", Path(__file__).parent)
