"""DCN-v2: perceptrons around cross layers of low rank."""

from typing import ClassVar

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dense_part import DensePart
from dlrm.model.mlp import Linear, draw_weight
from dlrm.model.tasks import make_top


class CrossLayers(nn.Module):
    """x_{l+1} = x_0 * (U_l (V_l x_l) + b_l) + x_l, elementwise product (Wang et al. 2021, arXiv 2008.13535, eq. 2).

    Weights begin like a perceptron's, b at zero.
    """

    def __init__(self, width: int, num_layers: int, rank: int, generator: torch.Generator) -> None:
        """Draw the weights. width: elements of x. rank: of U V, at most `width`: more adds nothing but cost."""
        super().__init__()
        self.v, self.u = make_low_rank(width, num_layers, rank, generator, bias=True)

    def forward(self, x0: torch.Tensor) -> torch.Tensor:
        """Map [c, width] to [c, width]."""
        x = x0
        for v, u in zip(self.v, self.u, strict=True):
            x = x0 * u(v(x)) + x
        return x


class DCNv2(DensePart):
    """The dense part of the stacked DCN-v2 (Wang et al. 2021, arXiv 2008.13535), as MLPerf's DLRM-DCNv2 has it.

    The input of the cross layers is the bottom's output and the pooled embeddings, concatenated; one may be missing.
    """

    cross_kind: ClassVar[type[CrossLayers]] = CrossLayers

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, generator: torch.Generator) -> None:
        """Draw the weights; arguments as for `DensePart`."""
        super().__init__(config, num_dense, num_features, generator)
        assert config.cross_layers is not None, "the architecture has them"
        assert config.cross_rank is not None, "the architecture has it"
        self.cross = self.cross_kind(self.width, config.cross_layers, config.cross_rank, generator)
        self.top = make_top(self.width, config, generator)

    def interact(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to logits, see `DensePart`."""
        x0 = self.join_vectors(dense, pooled).flatten(1)  # [c, V D]
        return self.finish(self.top(self.cross(x0)))


def make_low_rank(
    width: int, num_layers: int, rank: int, generator: torch.Generator, *, bias: bool
) -> tuple[nn.ModuleList, nn.ModuleList]:
    """Make the layers V_l [rank, width] and U_l [width, rank] of `num_layers` matrices U_l V_l, biases at zero."""
    rank = min(rank, width)
    v = [Linear(width, rank, bias=False) for _ in range(num_layers)]
    u = [Linear(rank, width, bias=bias) for _ in range(num_layers)]
    for pair in zip(v, u, strict=True):
        for layer in pair:
            draw_weight(layer, generator)
        if bias:
            nn.init.zeros_(pair[1].bias)
    return nn.ModuleList(v), nn.ModuleList(u)
