"""GDCN: a DCN-v2 whose cross layers have gates."""

from typing import ClassVar

import torch

from dlrm.model.dcn import CrossLayers, DCNv2, make_low_rank


class GatedCrossLayers(CrossLayers):
    """x_{l+1} = x_0 * (C_l x_l + b_l) * sigmoid(G_l x_l) + x_l, elementwise products (Wang et al. 2023, eq. 4).

    C = U V and G are matrices of low rank here, of any rank in the paper. With gates of 1 it is DCN-v2.
    """

    def __init__(self, width: int, num_layers: int, rank: int, generator: torch.Generator) -> None:
        """Draw the weights; arguments as for `CrossLayers`, the gates' matrices being of the same rank."""
        super().__init__(width, num_layers, rank, generator)
        self.gate_v, self.gate_u = make_low_rank(width, num_layers, rank, generator, bias=False)

    def forward(self, x0: torch.Tensor) -> torch.Tensor:
        """Map [c, width] to [c, width]."""
        x = x0
        for v, u, gate_v, gate_u in zip(self.v, self.u, self.gate_v, self.gate_u, strict=True):
            x = x0 * u(v(x)) * torch.sigmoid(gate_u(gate_v(x))) + x
        return x


class GDCN(DCNv2):
    """The dense part of the stacked gated deep cross network, GDCN-S (Wang et al. 2023, arXiv 2311.04635)."""

    cross_kind: ClassVar[type[CrossLayers]] = GatedCrossLayers
