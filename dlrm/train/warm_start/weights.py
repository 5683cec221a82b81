"""Weights of a warm start, under any plan: each rank reads its own rows only."""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from dlrm.exported_model.layout import WEIGHTS
from dlrm.train.build import Parts
from sharding.embedding import Shard

ROWS_PER_READ = 1 << 16
"""Rows of a table that are copied at a time: the file is mapped, and never in memory as a whole."""


@torch.no_grad()
def copy_weights(parts: Parts, model: Path) -> None:
    """Copy the tables' first rows and all dense parameters from the directory `model`, which is intact and fits.

    Rows of a table that the model does not have stay as they were drawn.
    """
    with safe_open(model / WEIGHTS, framework="pt") as weights:
        for shard in parts.tables.list_shards():
            _copy_rows(weights.get_slice(f"tables.{shard.spec.table.name}.weight"), shard)
        for name, parameter in parts.model.state_dict().items():
            parameter.copy_(weights.get_tensor(f"dense.{name}"))


def _copy_rows(saved: Any, shard: Shard) -> None:
    """Copy the rows of one shard. saved: the whole table, as safetensors slices it."""
    block = shard.spec.block
    end_row = min(saved.get_shape()[0], block.first_row + block.num_rows)
    for start in range(block.first_row, end_row, ROWS_PER_READ):
        end = min(start + ROWS_PER_READ, end_row)
        rows = slice(start - block.first_row, end - block.first_row)
        shard.weights[rows].copy_(saved[start:end, shard.spec.columns])
