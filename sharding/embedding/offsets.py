"""Offsets of bags in a flat array of ids."""

import torch


def compute_offsets(lengths: torch.Tensor) -> torch.Tensor:
    """Sum up `lengths` of n bags, of any shape: [n + 1] int64, the start of each bag and the end of the last one."""
    offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths.flatten(), 0, out=offsets[1:])
    return offsets
