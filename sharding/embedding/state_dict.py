"""Tables as torch.distributed.checkpoint saves and loads them, in place and under any plan."""

from collections.abc import Sequence

import torch
from torch.distributed import ProcessGroup
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from torch.distributed._shard.sharded_tensor.shard import Shard as TensorShard

from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.shard import Shard
from sharding.planner import Block, Plan, TablePlan
from sharding.planner.types import GRID_BYTES

PIECE_BYTES = 1 << 26
"""Bytes that a checkpoint has of a shard in one piece, at most; a reader has as much in memory at a time."""

NamedTables = dict[str, torch.Tensor | ShardedTensor]
"""Tensors by the table's name."""
TableStateDict = dict[str, NamedTables]
"""Tensors by "weights" and "optimizer", then by the table's name. If rows are int8, "rounding" has "num_updates", the
number of updates so far."""


def make_state_dict(plan: Plan, shards: list[Shard], optimizer: TableOptimizer, group: ProcessGroup) -> TableStateDict:
    """Collect weights and optimizer state of the tables that this rank has a shard of."""
    has_state = optimizer.get_state_shape(1, 1) is not None
    return {
        "weights": arrange_by_table(plan, shards, [shard.weights for shard in shards], group),
        "optimizer": arrange_by_table(plan, shards, [shard.state for shard in shards], group) if has_state else {},
    }


def arrange_by_table(
    plan: Plan, shards: Sequence[Shard], tensors: Sequence[torch.Tensor], group: ProcessGroup
) -> NamedTables:
    """Arrange `tensors`, one for each shard of this rank, as tensors of tables.

    Tables of other ranks must be left out: torch would take such a state dict for one of an older format.
    """
    named: NamedTables = {}
    for feature, planned in enumerate(plan.tables):
        own = [index for index, shard in enumerate(shards) if shard.spec.feature == feature]
        if own:
            tensors_of_table = [tensors[index] for index in own]
            named[planned.table.name] = _make_sharded_tensor(
                planned, tensors_of_table, [shards[index] for index in own], group
            )
    return named


def _make_sharded_tensor(
    planned: TablePlan, tensors: list[torch.Tensor], own: list[Shard], group: ProcessGroup
) -> torch.Tensor | ShardedTensor:
    """Make a tensor of the table's shape [R, C], of its rows [R], or of its rows in int8 [R, C + 8].

    This rank holds its parts `tensors`.
    """
    if planned.is_replicated:
        return tensors[0]
    one = tensors[0]
    num_more = GRID_BYTES if one.dtype == torch.uint8 else 0
    size = torch.Size([planned.table.num_rows, planned.table.embedding_dim + num_more][: one.dim()])
    by_block = {block: _split_block(block, one, num_more) for block in planned.blocks}
    pieces = [piece for of_block in by_block.values() for piece in of_block]
    metadata = ShardedTensorMetadata(pieces, size, TensorProperties(dtype=one.dtype))
    local: list[TensorShard] = []
    for tensor, shard in zip(tensors, own, strict=True):
        of_block = by_block[shard.spec.block]
        parts = tensor.split([piece.shard_sizes[0] for piece in of_block])
        local += [TensorShard(part, piece) for part, piece in zip(parts, of_block, strict=True)]
    return ShardedTensor._init_from_local_shards_and_global_metadata(local, metadata, group)


def _split_block(block: Block, one: torch.Tensor, num_more: int) -> list[ShardMetadata]:
    """Split the rows of a block into pieces of at most PIECE_BYTES, as far as rows allow.

    one: tensor of any of the table's blocks. num_more: bytes of a row of int8 beside its columns.
    """
    placement, num_dims, num_columns = f"rank:{block.rank}/{one.device}", one.dim(), block.num_columns + num_more
    row_bytes = one.itemsize * (num_columns if num_dims > 1 else 1)
    at_most = max(1, PIECE_BYTES // row_bytes)
    return [
        ShardMetadata(
            [block.first_row + start, block.first_column][:num_dims],
            [min(at_most, block.num_rows - start), num_columns][:num_dims],
            placement,
        )
        for start in range(0, block.num_rows, at_most)
    ]
