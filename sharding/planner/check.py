"""Checks a plan from its blocks alone, and trusts nothing that made it.

Cells, weights and optimizer state are counted anew here. Buffers are counted by `Memory`, as they were while the plan
was sought; a test holds that against the tensors of a real batch.
"""

from collections.abc import Sequence
from itertools import pairwise

from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.request import PlanRequest
from sharding.planner.types import COLUMN_TYPES, Block, Plan, TablePlan


def find_faults(request: PlanRequest, plan: Plan) -> list[str]:
    """What is wrong with `plan`; nothing where every cell of each table is on exactly one rank (or on all, once each),
    the optimizer allows how rows are split, and everything fits where it is."""
    if [table.table for table in plan.tables] != list(request.tables):
        return ["the plan is of other tables, or in another order"]
    if faults := [fault for table in plan.tables for fault in _faults_of_table(request, table)]:
        return faults
    topology = request.topology
    for pool, num_bytes in enumerate(bytes_by_memory(request, plan)):
        if num_bytes > topology.memory_bytes:
            what = "rank" if topology.device == "cuda" else "node"
            faults.append(f"{what} {pool} needs {num_bytes:,} bytes and has {topology.memory_bytes:,}")
    return faults


def bytes_by_memory(request: PlanRequest, plan: Plan) -> list[int]:
    """Bytes on each rank (on CPUs: on each node), counted block by block."""
    memory, topology = MemoryEstimator.of_plan(request, plan.tables), request.topology
    on_every_rank = sum(memory.everywhere(table.table for table in plan.tables if table.is_replicated).values())
    on_every_rank += sum(memory.split(table.table, table.blocks) for table in plan.tables if not table.is_replicated)
    pools = [on_every_rank * topology.ranks_per_memory_domain] * topology.num_memory_domains
    for table in plan.tables:
        for part in table.blocks:
            buffers = (
                memory.copy_buffers(table.table)
                if table.is_replicated
                else memory.block_buffers(table.table, part.num_rows, part.num_columns)
            )
            pools[topology.memory_domain(part.rank)] += _kept_bytes(request, part) + buffers
    return pools


def _kept_bytes(request: PlanRequest, block: Block) -> int:
    """Of fp32 weights, and of what the optimizer keeps beside them."""
    num_rows, num_cells = block.num_rows, block.num_rows * block.num_columns
    num_kept = {"sgd": 0, "rowwise_adagrad": num_rows, "adagrad": num_cells}
    return 4 * (num_cells + num_kept[request.optimizer])


def _faults_of_table(request: PlanRequest, plan: TablePlan) -> list[str]:
    name, world_size = plan.table.name, request.topology.world_size
    if outside := [block.rank for block in plan.blocks if not 0 <= block.rank < world_size]:
        return [f"{name}: there is no rank {outside[0]}"]
    if plan.sharding_type in COLUMN_TYPES and request.optimizer == "rowwise_adagrad":
        return [f"{name}: {plan.sharding_type} goes not with rowwise_adagrad"]
    if plan.is_replicated:
        whole = (0, plan.table.num_rows, 0, plan.table.embedding_dim)
        is_right = plan.ranks == tuple(range(world_size)) and len(plan.blocks) == world_size
        is_right = is_right and all(_rectangle(block) == whole for block in plan.blocks)
        return [] if is_right else [f"{name}: not one whole copy on every rank"]
    num_covered = sum(block.num_rows * block.num_columns for block in plan.blocks)
    if num_covered != plan.table.num_rows * plan.table.embedding_dim:
        return [f"{name}: its blocks have {num_covered:,} cells, and it has another number"]
    for block in plan.blocks:
        if not _is_inside(block, plan.table.num_rows, plan.table.embedding_dim):
            return [f"{name}: {block} is not within the table"]
    return _overlaps(name, plan.blocks)


def _overlaps(name: str, blocks: Sequence[Block]) -> list[str]:
    """None: as many cells as the table has, all within it and none twice, are all of it."""
    # Of two that share cells, one begins in a column that both have.
    for column in sorted({block.first_column for block in blocks}):
        there = [block for block in blocks if 0 <= column - block.first_column < block.num_columns]
        for block, other in pairwise(sorted(there, key=lambda block: block.first_row)):
            if other.first_row < block.first_row + block.num_rows:
                return [f"{name}: {block} and {other} share cells"]
    return []


def _rectangle(block: Block) -> tuple[int, int, int, int]:
    return block.first_row, block.num_rows, block.first_column, block.num_columns


def _is_inside(block: Block, num_rows: int, num_columns: int) -> bool:
    last_row, last_column = block.first_row + block.num_rows, block.first_column + block.num_columns
    is_there = block.num_rows > 0 and block.num_columns > 0 and block.first_row >= 0 and block.first_column >= 0
    return is_there and last_row <= num_rows and last_column <= num_columns
