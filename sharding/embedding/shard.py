"""Shards: the pieces of tables that one rank holds."""

from dataclasses import dataclass
from functools import cached_property

import torch

from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.planner import Block, Plan, Table
from sharding.planner.types import GRID_BYTES


@dataclass(frozen=True)
class ShardSpec:
    """Block of a table that a shard holds."""

    feature: int
    """Number of the table, and of the feature that reads it."""
    table: Table
    block: Block

    @cached_property
    def columns(self) -> slice:
        """Columns of the table that are in the shard."""
        return slice(self.block.first_column, self.block.first_column + self.block.num_columns)

    @property
    def shape(self) -> tuple[int, int]:
        """[R, C] of the shard."""
        return self.block.num_rows, self.block.num_columns

    @property
    def stored_shape(self) -> tuple[int, int]:
        """Shape of the weights as they are stored: [R, C], or [R, C + 8] if rows are int8."""
        return self.block.num_rows, self.block.num_columns + (GRID_BYTES if self.dtype == torch.uint8 else 0)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights as they are stored: uint8 if rows are int8, with a scale and an offset each."""
        return torch.uint8 if self.table.dtype == "int8" else torch.float32

    @property
    def sort_key(self) -> tuple[int, int, int]:
        """Key that sorts shards of the same columns by their first row."""
        return self.feature, self.block.first_column, self.block.first_row


@dataclass(frozen=True)
class Shard:
    """A piece of a table with its optimizer state."""

    spec: ShardSpec
    weights: torch.Tensor
    """[R, C] fp32, or [R, C + 8] uint8 if rows are int8 (see `int8_rows`); contiguous."""
    state: torch.Tensor
    """Optimizer state of the shape `TableOptimizer.get_state_shape`; [0] where the optimizer keeps none."""


def list_shard_specs(plan: Plan, rank: int, *, replicated: bool) -> list[ShardSpec]:
    """List the shards of `rank` in the order of the tables: shards of replicated tables, or of all others."""
    return [
        ShardSpec(feature, planned.table, block)
        for feature, planned in enumerate(plan.tables)
        if planned.is_replicated == replicated
        for block in planned.blocks
        if block.rank == rank
    ]


def make_shard(spec: ShardSpec, optimizer: TableOptimizer, weights: torch.Tensor) -> Shard:
    """Make a shard whose rows were never updated. weights: as in `Shard`, not initialised yet. The state is zero."""
    return Shard(spec, weights, torch.zeros(get_state_shape(spec, optimizer), device=weights.device))


def get_state_shape(spec: ShardSpec, optimizer: TableOptimizer) -> tuple[int, ...]:
    """Return the shape of a shard's state; (0,) if the optimizer keeps none."""
    return optimizer.get_state_shape(*spec.shape) or (0,)


def lay_out_columns(specs: list[ShardSpec]) -> tuple[int, list[slice]]:
    """Lay out the columns of all shards side by side: return their number, and the range of each shard."""
    ranges: list[slice] = []
    start = 0
    for spec in specs:
        end = start + spec.block.num_columns
        ranges.append(slice(start, end))
        start = end
    return start, ranges
