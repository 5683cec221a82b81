"""Cross layers of low rank."""

import torch
from torch import nn

from dlrm.model.initialise import draw_weight
from dlrm.model.linear import Linear


class CrossLayers(nn.Module):
    """x_{l+1} = x_0 * (U_l (V_l x_l) + b_l) + x_l, elementwise product (Wang et al. 2021, arXiv 2008.13535, eq. 2).

    Weights begin as a perceptron's, b at zero.
    """

    def __init__(self, width: int, num_layers: int, rank: int, generator: torch.Generator) -> None:
        """width: numbers of x. rank: of U V; above `width` it is that, since more adds nothing but cost."""
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
        """[c, width] -> [c, width]"""
        x = x0
        for v, u in zip(self.v, self.u, strict=True):
            x = x0 * u(v(x)) + x
        return x
