"""The sequences of a sample on their way into the interaction: each becomes one more vector."""

from collections.abc import Sequence

import torch
from torch import nn

from dlrm.config import AttentionConfig, ModelConfig
from dlrm.model.attention import make_attention
from sharding.jagged import SequenceShape


class Sequences(nn.Module):
    """The attention over each of S sequences, whose positions come after the pooled embeddings of the T tables.

    A position without an id has zeros, and is left out; no row of a table is zero in all elements, since rows begin as
    random numbers. So nothing but embeddings need travel to the dense part, and dropping a position from a copy of a
    sample (`dlrm.train.augmentation`) leaves it out too.
    """

    def __init__(
        self, config: ModelConfig, num_tables: int, shapes: Sequence[SequenceShape], generator: torch.Generator
    ) -> None:
        """Draw the weights. num_tables: T. shapes: of the S sequences."""
        super().__init__()
        self.num_tables, self.shapes = num_tables, tuple(shapes)
        settings = config.attention or AttentionConfig()
        self.attentions = nn.ModuleList(
            make_attention(settings, config.embedding_dim, shape.max_length, generator) for shape in shapes
        )

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Map embeddings [c, T + sum of L, D] to vectors [c, T + S, D], the sequences last."""
        of_tables, *of_sequences = pooled.split([self.num_tables, *(shape.max_length for shape in self.shapes)], dim=1)
        vectors = [
            attention(of_tables[:, shape.target], positions, positions.detach().ne(0).any(dim=2))
            for attention, shape, positions in zip(self.attentions, self.shapes, of_sequences, strict=True)
        ]
        return torch.cat([of_tables, *(vector.unsqueeze(1).to(pooled.dtype) for vector in vectors)], dim=1)
