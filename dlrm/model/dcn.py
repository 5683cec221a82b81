"""DCN-v2: perceptrons around cross layers."""

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.cross import CrossLayers
from dlrm.model.perceptron import Perceptron
from dlrm.model.vectors import joined, make_bottom


class DCNv2(nn.Module):
    """The dense part of the stacked DCN-v2 (Wang et al. 2021, arXiv 2008.13535), as MLPerf's DLRM-DCNv2 has it.

    Cross layers run over the bottom's output and the pooled embeddings, side by side; over what there is of them.
    """

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, seed: int) -> None:
        """num_dense: N. num_features: F. The initial weights are a function of `seed` and the shapes alone."""
        super().__init__()
        assert config.cross_layers is not None, "the architecture has them"
        assert config.cross_rank is not None, "the architecture has it"
        generator = torch.Generator().manual_seed(seed)
        self.bottom = make_bottom(config, num_dense, generator)
        num_vectors = num_features if self.bottom is None else num_features + 1
        width = num_vectors * config.embedding_dim
        self.cross = CrossLayers(width, config.cross_layers, config.cross_rank, generator)
        self.top = Perceptron(width, config.top_mlp, is_last_activated=False, generator=generator)

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """dense [c, N], pooled [c, F, D] -> logits [c]"""
        bottom = None if self.bottom is None else self.bottom(dense)  # [c, D]
        x0 = joined(bottom, pooled).flatten(1)  # [c, V D]
        return self.top(self.cross(x0)).squeeze(1)
