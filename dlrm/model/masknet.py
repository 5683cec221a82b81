"""MaskNet: a perceptron over blocks, in which the embeddings of a sample mask themselves."""

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dense_part import DensePart
from dlrm.model.mlp import Linear, Perceptron, draw_weight
from dlrm.model.norm import LayerNorm
from dlrm.model.tasks import make_top


class MaskNet(DensePart):
    """The dense part of the parallel MaskNet (Wang et al. 2021, arXiv 2102.07619): a top over blocks side by side.

    With e_i the vectors of a sample and x all of them concatenated, a block is

        ReLU(LN(W (mask * concat(LN(e_1), …, LN(e_V))))),   mask = W_2 ReLU(W_1 x + b_1) + b_2
    """

    def __init__(self, config: ModelConfig, num_dense: int, num_features: int, generator: torch.Generator) -> None:
        """Draw the weights; arguments as for `DensePart`."""
        super().__init__(config, num_dense, num_features, generator)
        assert config.mask_blocks is not None, "the architecture has them"
        assert config.mask_width is not None, "the architecture has it"
        assert config.mask_ratio is not None, "the architecture has it"
        hidden = max(1, round(config.mask_ratio * self.width))
        self.norm = LayerNorm(self.num_vectors, config.embedding_dim)
        self.blocks = nn.ModuleList(
            MaskBlock(self.width, hidden, config.mask_width, generator) for _ in range(config.mask_blocks)
        )
        num_inputs = config.mask_blocks * config.mask_width
        self.top = make_top(num_inputs, config, generator)

    def interact(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Map dense [c, N] and pooled [c, F, D] to logits, see `DensePart`."""
        vectors = self.join_vectors(dense, pooled)
        x, normalized = vectors.flatten(1), self.norm(vectors).flatten(1)
        return self.finish(self.top(torch.cat([block(x, normalized) for block in self.blocks], dim=1)))


class MaskBlock(nn.Module):
    """A mask of the embeddings by the embeddings, and a normalised layer over what it leaves."""

    def __init__(self, width: int, hidden: int, num_outputs: int, generator: torch.Generator) -> None:
        """Draw the weights. width: elements of x. hidden: units of the mask's hidden layer."""
        super().__init__()
        self.mask = Perceptron(width, [hidden, width], is_last_activated=False, generator=generator)
        self.layer = Linear(width, num_outputs, bias=False)
        draw_weight(self.layer, generator)
        self.norm = LayerNorm(num_outputs)

    def forward(self, x: torch.Tensor, normalized: torch.Tensor) -> torch.Tensor:
        """Map [c, width] and [c, width] to [c, num_outputs]."""
        return torch.relu(self.norm(self.layer(self.mask(x) * normalized)))
