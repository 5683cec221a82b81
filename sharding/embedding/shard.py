"""The pieces of tables that one rank holds."""

from dataclasses import dataclass

import torch

from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.planner import Block, Plan, Table


@dataclass(frozen=True)
class ShardSpec:
    """Which piece of which table."""

    feature: int
    """Number of the table, and of the feature that reads it."""
    table: Table
    block: Block

    @property
    def columns(self) -> slice:
        return slice(self.block.first_column, self.block.first_column + self.block.num_columns)

    @property
    def shape(self) -> tuple[int, int]:
        return self.block.num_rows, self.block.num_columns

    @property
    def order(self) -> tuple[int, int, int]:
        """By which the pieces that share columns come first rows first."""
        return self.feature, self.block.first_column, self.block.first_row


@dataclass(frozen=True)
class Shard:
    """A piece of a table, and what its optimizer keeps of it."""

    spec: ShardSpec
    weights: torch.Tensor
    """[R, C] fp32, contiguous."""
    state: torch.Tensor
    """As `TableOptimizer.state_shape` says; [0] where there is none."""


def shard_specs_on(plan: Plan, rank: int, *, replicated: bool) -> list[ShardSpec]:
    """Pieces on `rank`, in the order of the tables: the replicated ones, or all others."""
    return [
        ShardSpec(feature, planned.table, block)
        for feature, planned in enumerate(plan.tables)
        if planned.is_replicated == replicated
        for block in planned.blocks
        if block.rank == rank
    ]


def make_shard(place: ShardSpec, optimizer: TableOptimizer, weights: torch.Tensor) -> Shard:
    """With the state of rows that were never updated. weights: [R, C], not yet drawn."""
    shape = optimizer.state_shape(*place.shape)
    state = weights.new_zeros(0 if shape is None else shape)
    return Shard(place, weights, state)


def column_ranges(places: list[ShardSpec]) -> tuple[int, list[slice]]:
    """Columns of all `places` in one row, and which of them are whose."""
    columns: list[slice] = []
    first = 0
    for place in places:
        behind = first + place.block.num_columns
        columns.append(slice(first, behind))
        first = behind
    return first, columns
