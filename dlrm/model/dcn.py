"""DCN-v2: perceptrons around cross layers of low rank."""

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dlrm import concatenate_vectors
from dlrm.model.mlp import Linear, Perceptron, draw_weight, make_bottom


class DCNv2(nn.Module):
    """The dense part of the stacked DCN-v2 (Wang et al. 2021, arXiv 2008.13535), as MLPerf's DLRM-DCNv2 has it.

    The input of the cross layers is the bottom's output and the pooled embeddings, concatenated; one may be missing.
    """

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, seed: int) -> None:
        """Draw the weights, a function of `seed` and the shapes alone. num_dense: N. num_features: F."""
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
        """Map dense [c, N] and pooled [c, F, D] to logits [c]."""
        bottom = None if self.bottom is None else self.bottom(dense)  # [c, D]
        x0 = concatenate_vectors(bottom, pooled).flatten(1)  # [c, V D]
        return self.top(self.cross(x0)).squeeze(1)


class CrossLayers(nn.Module):
    """x_{l+1} = x_0 * (U_l (V_l x_l) + b_l) + x_l, elementwise product (Wang et al. 2021, arXiv 2008.13535, eq. 2).

    Weights begin like a perceptron's, b at zero.
    """

    def __init__(self, width: int, num_layers: int, rank: int, generator: torch.Generator) -> None:
        """Draw the weights. width: elements of x. rank: of U V, at most `width`: more adds nothing but cost."""
        super().__init__()
        rank = min(rank, width)
        self.v = nn.ModuleList(Linear(width, rank, bias=False) for _ in range(num_layers))
        self.u = nn.ModuleList(Linear(rank, width) for _ in range(num_layers))
        for v, u in zip(self.v, self.u, strict=True):
            assert isinstance(v, Linear)
            assert isinstance(u, Linear)
            draw_weight(v, generator)
            draw_weight(u, generator)
            nn.init.zeros_(u.bias)

    def forward(self, x0: torch.Tensor) -> torch.Tensor:
        """Map [c, width] to [c, width]."""
        x = x0
        for v, u in zip(self.v, self.u, strict=True):
            x = x0 * u(v(x)) + x
        return x
