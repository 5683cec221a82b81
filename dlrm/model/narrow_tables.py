"""Embeddings of tables that are narrower than the vectors of the interaction (mixed dimensions)."""

from collections.abc import Sequence

import torch
from torch import nn

from dlrm.model.mlp import Linear, draw_weight
from sharding.jagged import SequenceShape


class NarrowTables(nn.Module):
    """A linear map for each narrow table, from its d numbers to D (Ginart et al. 2019, arXiv 1909.11810, section 3).

    It has no bias: the embedding of an empty bag, and a position of a sequence without an id, stay zero.
    """

    def __init__(
        self,
        embedding_dim: int,
        table_dims: Sequence[int],
        sequences: Sequence[SequenceShape],
        generator: torch.Generator,
    ) -> None:
        """Draw the weights. embedding_dim: D. table_dims: dimension of each of T tables, some below D.

        sequences: shapes of further features, whose positions come after the embeddings of the tables.
        """
        super().__init__()
        self.layers = nn.ModuleList()
        self._columns: list[list[int]] = []
        """Columns of a sample's embeddings that each layer maps: the table's own, and the positions of its readers."""
        ends = [len(table_dims)]
        for shape in sequences:
            ends.append(ends[-1] + shape.max_length)
        for table, dim in enumerate(table_dims):
            if dim == embedding_dim:
                continue
            layer = Linear(dim, embedding_dim, bias=False)
            draw_weight(layer, generator)
            self.layers.append(layer)
            read = [range(ends[number], ends[number + 1]) for number, s in enumerate(sequences) if s.target == table]
            self._columns.append([table, *(column for positions in read for column in positions)])

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Map embeddings [c, F, largest d] to [c, F, D]; a narrow table has the first d numbers of its own."""
        columns = list(pooled.unbind(dim=1))
        for layer, own in zip(self.layers, self._columns, strict=True):
            assert isinstance(layer, Linear), "the layers are linear"
            if len(own) == 1:
                columns[own[0]] = layer(columns[own[0]][:, : layer.in_features]).to(pooled.dtype)
                continue
            wide = layer(pooled[:, own, : layer.in_features]).to(pooled.dtype)
            for column, vector in zip(own, wide.unbind(dim=1), strict=True):
                columns[column] = vector
        return torch.stack(columns, dim=1)
