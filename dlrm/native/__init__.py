"""Native operators for the dense part on the CPU: the interaction, squares of gradients, noise sums, factors.

setup.py builds them when the package is installed; where that failed, plain torch is used instead.
"""

from functools import cache
from pathlib import Path

import torch

from sharding.native import load_library


@cache
def has_native_operators() -> bool:
    """Whether the operators of `torch.ops.dlrm_dense` can be used."""
    return load_library("dense", Path(__file__).parent)


def fits_native_fp32(tensor: torch.Tensor) -> bool:
    """Whether the native operators can be used, and `tensor` is fp32 on a CPU, as they need it."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype == torch.float32
        and not torch.compiler.is_exporting()
        and has_native_operators()
    )
