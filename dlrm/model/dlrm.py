"""DLRM: perceptrons around the dot products of all pairs of feature vectors."""

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.perceptron import Perceptron


class DLRM(nn.Module):
    """The dense part of Naumov et al. 2019 (arXiv 1906.00091): all that is not an embedding table."""

    lower_triangle: torch.Tensor

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, seed: int) -> None:
        """num_dense: N. num_features: F. The initial weights are a function of `seed` and the shapes alone."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.bottom = Perceptron(num_dense, config.bottom_mlp, is_last_activated=True, generator=generator)
        num_vectors = num_features + 1
        num_pairs = num_vectors * (num_vectors - 1) // 2
        self.top = Perceptron(
            config.embedding_dim + num_pairs, config.top_mlp, is_last_activated=False, generator=generator
        )
        row, column = torch.tril_indices(num_vectors, num_vectors, offset=-1)
        self.register_buffer("lower_triangle", row * num_vectors + column, persistent=False)

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """dense [c, N], pooled [c, F, D] -> logits [c]"""
        bottom = self.bottom(dense)  # [c, D]
        vectors = torch.cat([bottom.unsqueeze(1), pooled.to(bottom.dtype)], dim=1)  # [c, F + 1, D]
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)  # [c, (F + 1)^2]
        pairs = products.index_select(1, self.lower_triangle)  # [c, F (F + 1) / 2]
        return self.top(torch.cat([bottom, pairs], dim=1)).squeeze(1)
