"""DLRM: perceptrons around the dot products of all pairs of feature vectors."""

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.perceptron import Perceptron
from dlrm.model.vectors import joined, make_bottom


class DLRM(nn.Module):
    """The dense part of Naumov et al. 2019 (arXiv 1906.00091): all that is not an embedding table.

    Beside the dot products the top gets the bottom's output. Without dense features it gets the pooled embeddings
    instead, all of them: products alone say nothing of a single feature, and one feature has none.
    """

    lower_triangle: torch.Tensor

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, seed: int) -> None:
        """num_dense: N. num_features: F. The initial weights are a function of `seed` and the shapes alone."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.bottom = make_bottom(config, num_dense, generator)
        num_vectors = num_features if self.bottom is None else num_features + 1
        num_beside = num_features if self.bottom is None else 1
        num_inputs = num_beside * config.embedding_dim + num_vectors * (num_vectors - 1) // 2
        self.top = Perceptron(num_inputs, config.top_mlp, is_last_activated=False, generator=generator)
        row, column = torch.tril_indices(num_vectors, num_vectors, offset=-1)
        self.register_buffer("lower_triangle", row * num_vectors + column, persistent=False)

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """dense [c, N], pooled [c, F, D] -> logits [c]"""
        bottom = None if self.bottom is None else self.bottom(dense)  # [c, D]
        vectors = joined(bottom, pooled)  # [c, V, D]
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)  # [c, V^2]
        pairs = products.index_select(1, self.lower_triangle)  # [c, V (V - 1) / 2]
        beside = pooled.flatten(1) if bottom is None else bottom
        return self.top(torch.cat([beside, pairs], dim=1)).squeeze(1)
