"""Wukong: stacked factorization machines, whose every layer makes new vectors of those before."""

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dense_part import DensePart
from dlrm.model.mlp import Linear, Perceptron, draw_weight
from dlrm.model.norm import LayerNorm
from dlrm.model.tasks import make_top


class Wukong(DensePart):
    """The dense part of Zhang et al. 2024 (arXiv 2403.02545): X_{l+1} = LN(concat(FMB(X_l), LCB(X_l)) + R X_l).

    X_l [V_l, D] are vectors; both blocks make as many, and R is the identity where V_l is the number of both. The top
    gets all vectors of the last layer.
    """

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, generator: torch.Generator) -> None:
        """Draw the weights; arguments as for `DensePart`."""
        super().__init__(config, num_dense, num_features, generator)
        assert config.wukong_layers is not None, "the architecture has them"
        num_vectors = [self.num_vectors, *[2 * get_num_vectors(config)] * config.wukong_layers]
        self.layers = nn.ModuleList(WukongLayer(n, config, generator) for n in num_vectors[:-1])
        num_inputs = num_vectors[-1] * config.embedding_dim
        self.top = make_top(num_inputs, config, generator)

    def interact(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to logits, see `DensePart`."""
        x = self.join_vectors(dense, pooled)
        for layer in self.layers:
            x = layer(x)
        return self.finish(self.top(x.flatten(1)))


class WukongLayer(nn.Module):
    """One layer, with Y, W and R as linear maps of vectors, which take every element of them alike.

    FMB(X) = MLP(LN(flatten(X X^T Y))), cut into vectors: dot products of all pairs, in Y [V, k] reduced to k for each
    vector. LCB(X) = W X.
    """

    def __init__(self, num_vectors: int, config: ModelConfig, generator: torch.Generator) -> None:
        """Draw the weights. num_vectors: V of the layer's input."""
        super().__init__()
        assert config.wukong_rank is not None, "the architecture has it"
        assert config.wukong_width is not None, "the architecture has it"
        self.dim, num_made = config.embedding_dim, get_num_vectors(config)
        rank = min(config.wukong_rank, num_vectors)
        self.y = Linear(num_vectors, rank, bias=False)
        self.w = Linear(num_vectors, num_made, bias=False)
        self.r = None if num_vectors == 2 * num_made else Linear(num_vectors, 2 * num_made, bias=False)
        for layer in (self.y, self.w, self.r):
            if layer is not None:
                draw_weight(layer, generator)
        self.products_norm = LayerNorm(num_vectors * rank)
        self.mlp = Perceptron(
            num_vectors * rank, [config.wukong_width, num_made * self.dim], is_last_activated=False, generator=generator
        )
        self.norm = LayerNorm(self.dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [c, V, D] to twice as many vectors as a block makes."""
        columns = x.transpose(1, 2).contiguous()  # [c, D, V]
        products = torch.bmm(x, self.y(columns))  # [c, V, k]
        fmb = self.mlp(self.products_norm(products.flatten(1))).unflatten(1, (-1, self.dim))
        lcb = self.w(columns).transpose(1, 2)
        residual = x if self.r is None else self.r(columns).transpose(1, 2)
        return self.norm(torch.cat([fmb, lcb], dim=1) + residual)


def get_num_vectors(config: ModelConfig) -> int:
    """Return the number of vectors that each block of a layer makes."""
    assert config.wukong_vectors is not None, "the architecture has them"
    return config.wukong_vectors
