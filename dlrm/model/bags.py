"""Pooling of the bags of many features in plain torch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

_RESERVED_NAMES = nn.ModuleDict()
"""Module dictionary whose attributes, such as `type` and `keys`, cannot be names of modules."""


def encode_table_name(feature: str) -> str:
    """Return the name of a feature's table in models and checkpoints: the feature's, percent-encoded where needed.

    torch keeps modules as attributes, by names without a dot. Different features have different names.
    """
    name = feature.replace("%", "%25").replace(".", "%2E")
    return f"%{ord(name[0]):02X}{name[1:]}" if hasattr(_RESERVED_NAMES, name) else name


def make_tables(
    table_rows: Mapping[str, int], table_dims: Mapping[str, int], pooling: Literal["sum", "mean"]
) -> nn.ModuleDict:
    """Make a table for each feature, without weights yet. table_rows, table_dims: rows and columns by feature."""
    return nn.ModuleDict(
        {
            encode_table_name(feature): _make_table(num_rows, table_dims[feature], pooling)
            for feature, num_rows in table_rows.items()
        }
    )


def pool_bags(tables: Iterable[nn.Module], ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Look up and pool the rows of at least one table: [n, F, columns of the widest]; an empty bag gives zeros.

    ids: [sum of lengths], feature by feature and row by row. lengths: [F, n].
    """
    ids_by_feature = ids.split(lengths.sum(dim=1).tolist())
    offsets = lengths.cumsum(dim=1) - lengths  # [F, n]
    bags = zip(tables, ids_by_feature, offsets.to(ids.dtype), strict=True)
    return concatenate_columns([table(ids, starts).unsqueeze(1) for table, ids, starts in bags])


def concatenate_columns(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate embeddings [n, features, d] along the features; narrow ones get zeros at the end."""
    widest = max(part.shape[2] for part in parts)
    return torch.cat(
        [F.pad(part, (0, widest - part.shape[2])) if part.shape[2] < widest else part for part in parts], 1
    )


def place_bags(table: nn.Module, ids: torch.Tensor, lengths: torch.Tensor, max_length: int) -> torch.Tensor:
    """Look up the rows of sequences one by one: [n, L, columns], the last id at position L - 1, zeros before them.

    ids: [sum of lengths], row by row. lengths: [n], each up to L = `max_length`.
    """
    rows = table(ids, torch.arange(len(ids), dtype=ids.dtype))
    placed = rows.new_zeros(len(lengths), max_length, rows.shape[1])
    from_last = max_length - torch.arange(max_length)
    placed[from_last <= lengths.unsqueeze(1)] = rows
    return placed


def _make_table(num_rows: int, num_columns: int, pooling: Literal["sum", "mean"]) -> nn.EmbeddingBag:
    """Make a table without weights. `from_pretrained` draws none, which would load torch's compiler."""
    none = torch.empty(num_rows, num_columns, device="meta")
    return nn.EmbeddingBag.from_pretrained(none, freeze=False, mode=pooling)
