"""A whole model in plain torch: the dense part and its tables in one module, for scoring anywhere."""

from collections.abc import Mapping

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.dense_part import make_dense_part

_RESERVED_NAMES = nn.ModuleDict()
"""Module dictionary whose attributes, such as `type` and `keys`, cannot be names of modules."""


def encode_table_name(feature: str) -> str:
    """Return the name of a feature's table in models and checkpoints: the feature's, percent-encoded where needed.

    torch keeps modules as attributes, by names without a dot. Different features have different names.
    """
    name = feature.replace("%", "%25").replace(".", "%2E")
    return f"%{ord(name[0]):02X}{name[1:]}" if hasattr(_RESERVED_NAMES, name) else name


class PlainModel(nn.Module):
    """The dense part and the tables by name; its scores are those of the sharded model."""

    def __init__(self, config: ModelConfig, num_dense: int, table_rows: Mapping[str, int]) -> None:
        """Make the modules, with tables that have no weights yet. table_rows: rows by feature, in their order."""
        super().__init__()
        self.tables = nn.ModuleDict(
            {encode_table_name(feature): _make_table(num_rows, config) for feature, num_rows in table_rows.items()}
        )
        self.dense = make_dense_part(config, num_dense, len(table_rows), seed=0)
        self._embedding_dim = config.embedding_dim

    def forward(self, dense: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Map dense [n, N], ids [sum of lengths] feature by feature and row by row, and lengths [F, n] to logits [n].

        The embeddings of a bag are pooled as the configuration says; an empty bag gives zeros.
        """
        return self.dense(dense, self._pool(ids, lengths))

    def _pool(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Look up and pool the embeddings [n, F, D]."""
        if not self.tables:
            return torch.empty(lengths.shape[1], 0, self._embedding_dim)
        ids_by_feature = ids.split(lengths.sum(dim=1).tolist())
        offsets = lengths.cumsum(dim=1) - lengths  # [F, n]
        bags = zip(self.tables.values(), ids_by_feature, offsets.to(ids.dtype), strict=True)
        return torch.stack([table(ids, starts) for table, ids, starts in bags], dim=1)


def _make_table(num_rows: int, config: ModelConfig) -> nn.EmbeddingBag:
    """Make a table without weights. `from_pretrained` draws none, which would load torch's compiler."""
    none = torch.empty(num_rows, config.embedding_dim, device="meta")
    return nn.EmbeddingBag.from_pretrained(none, freeze=False, mode=config.pooling)
