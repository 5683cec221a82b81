"""Our plan as TorchRec's sharding plan.

A table whose blocks are where one of TorchRec's sharding types puts them is one table of TorchRec's, of that type: then
TorchRec itself splits ids by rows, and sums partial embeddings where rows are split. TorchRec has less freedom than our
plans. It splits rows over all ranks, or over all ranks of a node, in their order, in equal ranges. Every block of
another layout is a table of TorchRec's of its own, table_wise on the block's rank: the ids of its rows are selected
before the input dist, and the partial embeddings of ranges of rows are added up where they arrive.
"""

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharding_spec.api import EnumerableShardingSpec
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.types import CacheAlgorithm, CacheParams, EmbeddingModuleShardingPlan, ParameterSharding
from torchrec.distributed.types import ShardingType as TheirType

from sharding.embedding.shard import ShardSpec
from sharding.planner import Block, Plan, ShardingType, TablePlan
from sharding.planner.enumerator import split_by_rows

THEIR_TYPES: dict[ShardingType, TheirType] = {
    "table_wise": TheirType.TABLE_WISE,
    "column_wise": TheirType.COLUMN_WISE,
    "row_wise": TheirType.ROW_WISE,
    "table_row_wise": TheirType.TABLE_ROW_WISE,
    "table_column_wise": TheirType.TABLE_COLUMN_WISE,
    "grid": TheirType.GRID_SHARD,
}
"""TorchRec's names of the types; data_parallel tables are not TorchRec's (`ReplicatedTransport` has them)."""


@dataclass(frozen=True)
class TorchRecTable:
    """A table as TorchRec sees it: a whole table of ours, or one block of it."""

    name: str
    """Name in TorchRec, of the table and of the feature that reads it. It is made of numbers: our names may contain
    characters that torch allows in no name of a module."""
    part: ShardSpec
    """Part of our table that it is. The rank of its block has no meaning where `blocks` are on several."""
    sharding_type: ShardingType
    blocks: tuple[Block, ...]
    """Shards, as blocks of our table; all have rows and columns."""

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole table of ours."""
        return self.part.shape == (self.part.table.num_rows, self.part.table.embedding_dim)


def name_feature(feature: int) -> str:
    """Name a feature of ours, and the whole table that it reads, in TorchRec."""
    return f"t{feature}"


def list_torchrec_tables(plan: Plan, ranks_per_node: int) -> list[TorchRecTable]:
    """List the tables of a plan that are not replicated, as TorchRec can shard them."""
    tables: list[TorchRecTable] = []
    widths: dict[ShardingType, set[int]] = defaultdict(set)
    for planned in plan.tables:
        widths[planned.sharding_type] |= {block.num_columns for block in planned.blocks}
    for feature, planned in enumerate(plan.tables):
        table, blocks = planned.table, planned.blocks
        if planned.is_replicated:
            continue
        has_mixed_widths = len(widths[planned.sharding_type]) > 1
        if sharding_type := _find_type(planned, plan.world_size, ranks_per_node, has_mixed_widths=has_mixed_widths):
            whole = Block(blocks[0].rank, 0, table.num_rows, 0, table.embedding_dim)
            tables.append(TorchRecTable(name_feature(feature), ShardSpec(feature, table, whole), sharding_type, blocks))
            continue
        tables += [
            TorchRecTable(f"{name_feature(feature)}_{number}", ShardSpec(feature, table, block), "table_wise", (block,))
            for number, block in enumerate(blocks)
        ]
    return tables


def make_sharding_plan(
    tables: list[TorchRecTable], world_size: int, ranks_per_node: int, device: torch.device
) -> EmbeddingModuleShardingPlan:
    """Make TorchRec's plan of its tables, all with fused optimizers."""
    plan = EmbeddingModuleShardingPlan()
    for table in tables:
        blocks = _list_blocks(table, world_size, ranks_per_node)
        plan[table.name] = ParameterSharding(
            sharding_type=THEIR_TYPES[table.sharding_type].value,
            compute_kernel=_choose_kernel(table).value,
            cache_params=_make_cache_params(table),
            ranks=[block.rank for block in blocks],
            sharding_spec=EnumerableShardingSpec([_make_metadata(table.part.block, block, device) for block in blocks]),
        )
    return plan


def _choose_kernel(table: TorchRecTable) -> EmbeddingComputeKernel:
    """Choose the kernel of a table, which updates rows in the backward pass.

    The DENSE kernel, which TorchRec's own helpers choose, would train nothing there.
    """
    is_cached = table.part.table.is_cached
    return EmbeddingComputeKernel.FUSED_UVM_CACHING if is_cached else EmbeddingComputeKernel.FUSED


def _make_cache_params(table: TorchRecTable) -> CacheParams | None:
    if not table.part.table.is_cached:
        return None
    # LRU needs no count of each row's uses, as LFU does.
    return CacheParams(algorithm=CacheAlgorithm.LRU, load_factor=table.part.table.cache_share)


def _find_type(
    planned: TablePlan, world_size: int, ranks_per_node: int, *, has_mixed_widths: bool
) -> ShardingType | None:
    """Find the type by which TorchRec puts the blocks of a table where our plan has them; None if absent.

    has_mixed_widths: whether shards of the type have different numbers of columns. FBGEMM (1.8, on CPUs) updates a
    table with the width of one without rows before it, so that no rank may have such a one then.
    """
    if len(planned.blocks) == 1:
        return "table_wise"
    if has_mixed_widths and _leaves_ranks_out(planned, world_size, ranks_per_node):
        return None
    match planned.sharding_type:
        case "column_wise" | "table_column_wise":
            return planned.sharding_type
        case "row_wise" if planned.blocks == split_by_rows(planned.table, range(world_size)):
            return "row_wise"
        case "table_row_wise" if _is_by_rows_of_a_node(planned, planned.blocks, ranks_per_node):
            return "table_row_wise"
        case "grid" if all(
            _is_by_rows_of_a_node(planned, blocks, ranks_per_node) for blocks in _group_by_columns(planned.blocks)
        ):
            return "grid"
        case _:
            return None


def _leaves_ranks_out(planned: TablePlan, world_size: int, ranks_per_node: int) -> bool:
    """Whether TorchRec gives some ranks a shard without rows."""
    match planned.sharding_type:
        case "row_wise":
            return len(planned.blocks) < world_size
        case "table_row_wise" | "grid":
            return any(len(blocks) < ranks_per_node for blocks in _group_by_columns(planned.blocks))
        case _:
            return False


def _group_by_columns(blocks: tuple[Block, ...]) -> list[tuple[Block, ...]]:
    columns = dict.fromkeys(block.first_column for block in blocks)
    return [tuple(block for block in blocks if block.first_column == column) for column in columns]


def _is_by_rows_of_a_node(planned: TablePlan, blocks: tuple[Block, ...], ranks_per_node: int) -> bool:
    """Whether the blocks, of the same columns, are equal ranges of rows over all ranks of a node, in their order."""
    rows = [(block.rank, block.first_row, block.num_rows) for block in blocks]
    node = range(blocks[0].rank, blocks[0].rank + ranks_per_node)
    expected = [(block.rank, block.first_row, block.num_rows) for block in split_by_rows(planned.table, node)]
    return node.start % ranks_per_node == 0 and rows == expected


def _list_blocks(table: TorchRecTable, world_size: int, ranks_per_node: int) -> list[Block]:
    """List the blocks of a table as its type wants them: some types want one on every rank, of no row if need be."""
    if table.sharding_type == "row_wise":
        groups, group_size = [table.blocks], world_size
    elif table.sharding_type in ("table_row_wise", "grid"):
        groups, group_size = _group_by_columns(table.blocks), ranks_per_node
    else:
        return list(table.blocks)
    listed: list[Block] = []
    for blocks in groups:
        last = blocks[-1]
        # A table of few rows leaves the last ranks of a group without any.
        without = range(last.rank + 1, blocks[0].rank + group_size)
        end_row = table.part.block.num_rows
        listed += [*blocks, *(Block(rank, end_row, 0, last.first_column, last.num_columns) for rank in without)]
    return listed


def _make_metadata(whole: Block, block: Block, device: torch.device) -> ShardMetadata:
    where = f"rank:{block.rank}/{device.type}" + (f":{device.index}" if device.index is not None else "")
    offsets = [block.first_row - whole.first_row, block.first_column - whole.first_column]
    return ShardMetadata(offsets, [block.num_rows, block.num_columns], where)
