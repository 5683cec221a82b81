"""A check of a plan from its blocks only, independent of the search that made it.

Cells, weights and optimizer state are counted again here. Buffers are counted by `MemoryEstimator`, as in the search; a
test compares that with the tensors of a real batch.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.types import COLUMN_TYPES, INT8_TYPES, Block, Plan, PlanRequest, Table, TablePlan


def find_faults(request: PlanRequest, plan: Plan) -> list[str]:
    """List the faults of `plan`, one phrase each; an empty list for a sound plan.

    A plan is sound if every cell of each table is on exactly one rank (or on all, once each), the optimizer allows how
    rows are split, and everything fits into the memory where it is.
    """
    if [replace(planned.table, cache_share=1.0) for planned in plan.tables] != list(request.tables):
        return ["the plan has other tables than the request, or another order"]
    if faults := [fault for table in plan.tables for fault in _find_table_faults(request, table)]:
        return faults
    topology = request.topology
    if request.is_in_files and (request.transport != "memory" or request.is_averaged):
        faults.append("tables in files need ranks that share memory, and no average of the weights")
    for memory_domain, num_bytes in enumerate(count_bytes_by_memory_domain(request, plan)):
        if num_bytes > topology.memory_bytes:
            owner = "rank" if topology.device == "cuda" else "node"
            faults.append(f"{owner} {memory_domain} needs {num_bytes:,} bytes and has {topology.memory_bytes:,}")
    return faults + _find_cache_faults(request, plan)


def _find_cache_faults(request: PlanRequest, plan: Plan) -> list[str]:
    """List the faults of tables that stay in the memory of the host."""
    cached = [table for table in plan.tables if table.table.is_cached]
    if not cached:
        return []
    if not request.may_cache:
        return [f"{cached[0].table.name}: the request does not allow it to stay in the host's memory"]
    faults: list[str] = []
    for table in cached:
        if table.sharding_type in ("data_parallel", *COLUMN_TYPES):
            faults.append(f"{table.table.name}: {table.sharding_type} does not work with a cache")
        if table.table.cache_share < request.min_cache_share:
            faults.append(f"{table.table.name}: less of it is cached than the request allows")
    by_node = [request.dense.host_memory_bytes] * request.topology.num_nodes
    for block in (block for table in cached for block in table.blocks):
        num_cells = block.num_rows * block.num_columns
        # Of Adagrad's numbers for each weight; those for each row are on the GPU.
        num_state = num_cells if request.optimizer == "adagrad" else 0
        # FBGEMM lists all cached rows at the start: 24 bytes for each in Python, 4 in the tensor made of that.
        by_node[request.topology.get_node(block.rank)] += 4 * (num_cells + num_state) + 28 * block.num_rows
    for node, num_bytes in enumerate(by_node):
        if num_bytes > request.topology.host_memory_bytes:
            faults.append(f"host {node} needs {num_bytes:,} bytes and has {request.topology.host_memory_bytes:,}")
    return faults


def count_bytes_by_memory_domain(request: PlanRequest, plan: Plan) -> list[int]:
    """Return the bytes on each rank (on CPUs: on each node), counted block by block."""
    memory, topology = MemoryEstimator.from_plan(request, plan.tables), request.topology
    on_every_rank = sum(
        memory.estimate_common_bytes(table.table for table in plan.tables if table.is_replicated).values()
    )
    on_every_rank += sum(
        memory.estimate_split_table_bytes(table.table, table.blocks) for table in plan.tables if not table.is_replicated
    )
    by_domain = [on_every_rank * topology.ranks_per_memory_domain] * topology.num_memory_domains
    for table in plan.tables:
        for block in table.blocks:
            buffers = (
                memory.estimate_copy_buffer_bytes(table.table)
                if table.is_replicated
                else memory.estimate_shard_buffer_bytes(table.table, block.num_rows, block.num_columns)
            )
            # What is resident of tables in files is among the buffers of every rank.
            is_in_file = request.is_in_files and not table.is_replicated
            kept = 0 if is_in_file else _count_weight_and_state_bytes(request, block, table.table)
            by_domain[topology.get_memory_domain(block.rank)] += kept + buffers
    return by_domain


def _count_weight_and_state_bytes(request: PlanRequest, block: Block, table: Table) -> int:
    # Not the functions of `types.py` and `cache_size.py`, which the search uses: a fault in them should show here.
    num_rows, num_cells = block.num_rows, block.num_rows * block.num_columns
    if table.cache_share < 1:
        num_slots = math.ceil(table.cache_share * num_rows)
        # A cached row has its weights, its number and its last use, and every row the number of its table.
        num_bytes = num_slots * (4 * block.num_columns + 8 + 8) + 4 * num_rows
        return num_bytes + (4 * num_rows if request.optimizer == "rowwise_adagrad" else 0)
    num_state = {"sgd": 0, "rowwise_adagrad": num_rows, "adagrad": num_cells}
    num_weight_bytes = num_cells + 8 * num_rows if table.dtype == "int8" else 4 * num_cells
    return num_weight_bytes + 4 * num_state[request.optimizer]


def _find_table_faults(request: PlanRequest, plan: TablePlan) -> list[str]:
    name, world_size = plan.table.name, request.topology.world_size
    if outside := [block.rank for block in plan.blocks if not 0 <= block.rank < world_size]:
        return [f"{name}: there is no rank {outside[0]}"]
    if plan.sharding_type in COLUMN_TYPES and request.optimizer == "rowwise_adagrad":
        return [f"{name}: {plan.sharding_type} does not work with rowwise_adagrad"]
    if plan.sharding_type not in INT8_TYPES and plan.table.dtype == "int8":
        return [f"{name}: {plan.sharding_type} does not work with int8"]
    if plan.is_replicated:
        whole = (0, plan.table.num_rows, 0, plan.table.embedding_dim)
        is_right = plan.ranks == tuple(range(world_size)) and len(plan.blocks) == world_size
        is_right = is_right and all(_get_rectangle(block) == whole for block in plan.blocks)
        return [] if is_right else [f"{name}: there must be one whole copy on every rank"]
    num_covered = sum(block.num_rows * block.num_columns for block in plan.blocks)
    num_cells = plan.table.num_rows * plan.table.embedding_dim
    if num_covered != num_cells:
        return [f"{name}: its blocks have {num_covered:,} cells, and the table has {num_cells:,}"]
    for block in plan.blocks:
        if not _is_inside(block, plan.table.num_rows, plan.table.embedding_dim):
            return [f"{name}: {block} is not within the table"]
    return _find_overlap_faults(name, plan.blocks)


def _find_overlap_faults(name: str, blocks: Sequence[Block]) -> list[str]:
    """Return a fault where two blocks share cells.

    Blocks that have as many cells as the table, are all within it and share none cover it exactly once.
    """
    # Where two blocks share cells, one of them begins in a column that both have.
    for column in sorted({block.first_column for block in blocks}):
        in_column = [block for block in blocks if 0 <= column - block.first_column < block.num_columns]
        for block, other in pairwise(sorted(in_column, key=lambda block: block.first_row)):
            if other.first_row < block.first_row + block.num_rows:
                return [f"{name}: {block} and {other} share cells"]
    return []


def _get_rectangle(block: Block) -> tuple[int, int, int, int]:
    return block.first_row, block.num_rows, block.first_column, block.num_columns


def _is_inside(block: Block, num_rows: int, num_columns: int) -> bool:
    end_row, end_column = block.first_row + block.num_rows, block.first_column + block.num_columns
    is_valid = block.num_rows > 0 and block.num_columns > 0 and block.first_row >= 0 and block.first_column >= 0
    return is_valid and end_row <= num_rows and end_column <= num_columns
