"""Own operators of the dense part on the CPU: the interaction, and what moments are made of and used for.

Built when the package is installed, by setup.py; plain torch serves instead where they could not be.
"""

from functools import cache
from pathlib import Path

import torch

from sharding.native import load_library


@cache
def has_own_operators() -> bool:
    """Whether `torch.ops.dlrm_dense` is there."""
    return load_library("dense", Path(__file__).parent)


def fits_own_fp32(tensor: torch.Tensor) -> bool:
    """Whether the own operators are there, and take `tensor`: those for fp32 on a CPU."""
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and has_own_operators()
