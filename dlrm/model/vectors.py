"""What features are before they interact: V vectors of D numbers a sample, one of the dense ones and F embeddings."""

import torch

from dlrm.config import ModelConfig
from dlrm.model.perceptron import Perceptron


def make_bottom(config: ModelConfig, num_dense: int, generator: torch.Generator) -> Perceptron | None:
    """The perceptron over the dense features; None where there are none."""
    if num_dense == 0:
        return None
    return Perceptron(num_dense, config.bottom_mlp, is_last_activated=True, generator=generator)


def joined(bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
    """bottom [c, D], pooled [c, F, D] -> [c, V, D], bottom first; not both may be missing."""
    if bottom is None:
        return pooled
    first = bottom.unsqueeze(1)
    return torch.cat([first, pooled.to(bottom.dtype)], dim=1) if pooled.shape[1] else first
