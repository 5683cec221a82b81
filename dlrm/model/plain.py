"""A whole model in plain torch: the dense part and its tables in one module, for scoring anywhere."""

from collections.abc import Mapping

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dense_part import make_dense_part
from dlrm.model.names import table_name


class PlainModel(nn.Module):
    """Tables by name and the dense part; scores what the sharded model scores."""

    def __init__(self, config: ModelConfig, num_dense: int, table_rows: Mapping[str, int]) -> None:
        """table_rows: rows of each feature's table, in the order of the features."""
        super().__init__()
        self.tables = nn.ModuleDict(
            {table_name(feature): _table(num_rows, config) for feature, num_rows in table_rows.items()}
        )
        self.dense = make_dense_part(config, num_dense, len(table_rows), seed=0)
        self._embedding_dim = config.embedding_dim

    def forward(self, dense: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """dense [n, N], ids [sum of lengths] feature by feature and row by row, lengths [F, n] -> logits [n]

        The embeddings of a bag are pooled as the configuration says; an empty bag gives zeros.
        """
        return self.dense(dense, self._pooled(ids, lengths))

    def _pooled(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """[n, F, D]"""
        if not self.tables:
            return torch.empty(lengths.shape[1], 0, self._embedding_dim)
        ids_by_feature = ids.split(lengths.sum(dim=1).tolist())
        offsets = lengths.cumsum(dim=1) - lengths  # [F, n]
        bags = zip(self.tables.values(), ids_by_feature, offsets.to(ids.dtype), strict=True)
        return torch.stack([table(ids, starts) for table, ids, starts in bags], dim=1)


def _table(num_rows: int, config: ModelConfig) -> nn.EmbeddingBag:
    """Without weights yet. Made from none rather than by its size: drawing some would load half of torch's compiler."""
    none = torch.empty(num_rows, config.embedding_dim, device="meta")
    return nn.EmbeddingBag.from_pretrained(none, freeze=False, mode=config.pooling)
