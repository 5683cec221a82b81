"""A whole model in plain torch: the dense part and its tables in one module, for scoring anywhere."""

from collections.abc import Mapping

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dlrm import DLRM


class PlainModel(nn.Module):
    """Tables by name and the dense part; scores what the sharded model scores."""

    def __init__(self, config: ModelConfig, num_dense: int, table_rows: Mapping[str, int]) -> None:
        """table_rows: rows of each table, in the order of the features."""
        super().__init__()
        self.tables = nn.ModuleDict(
            {name: nn.Embedding(num_rows, config.embedding_dim, device="meta") for name, num_rows in table_rows.items()}
        )
        self.dense = DLRM(config, num_dense, len(table_rows), seed=0)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """dense [n, N], ids [F, n] -> logits [n]"""
        pooled = torch.stack([table(ids[f]) for f, table in enumerate(self.tables.values())], dim=1)  # [n, F, D]
        return self.dense(dense, pooled)
