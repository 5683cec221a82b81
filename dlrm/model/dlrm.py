"""DLRM: perceptrons around the dot products of all pairs of feature vectors."""

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.interaction import Interaction
from dlrm.model.perceptron import Perceptron
from dlrm.model.vectors import make_bottom


class DLRM(nn.Module):
    """The dense part of Naumov et al. 2019 (arXiv 1906.00091): all that is not an embedding table.

    Beside the dot products the top gets the bottom's output. Without dense features it gets the pooled embeddings
    instead, all of them: products alone say nothing of a single feature, and one feature has none.
    """

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, seed: int) -> None:
        """num_dense: N. num_features: F. The initial weights are a function of `seed` and the shapes alone."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.bottom = make_bottom(config, num_dense, generator)
        num_vectors = num_features if self.bottom is None else num_features + 1
        num_beside = num_features if self.bottom is None else 1
        num_inputs = num_beside * config.embedding_dim + num_vectors * (num_vectors - 1) // 2
        self.top = Perceptron(num_inputs, config.top_mlp, is_last_activated=False, generator=generator)
        self.interaction = Interaction(num_vectors)

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """dense [c, N], pooled [c, F, D] -> logits [c]"""
        bottom = None if self.bottom is None else self.bottom(dense)  # [c, D]
        return self.top(self.interaction(bottom, pooled)).squeeze(1)
