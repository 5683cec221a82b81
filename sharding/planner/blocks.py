"""The blocks of a table under each sharding type. Pure functions."""

from collections.abc import Sequence

from sharding.planner.types import Block, Table

COLUMN_STEP = 4
"""Columns are parted at its multiples where the table's own number is one: FBGEMM's kernels need that."""


def whole(table: Table, rank: int) -> tuple[Block, ...]:
    """table_wise: all of it on one rank."""
    return (Block(rank, 0, table.num_rows, 0, table.embedding_dim),)


def replicated(table: Table, world_size: int) -> tuple[Block, ...]:
    """data_parallel: all of it on every rank."""
    return tuple(block for rank in range(world_size) for block in whole(table, rank))


def by_rows(table: Table, ranks: Sequence[int]) -> tuple[Block, ...]:
    """row_wise over all ranks, table_row_wise over those of one node: equal runs of rows, the last may be short.

    A table with too few rows for every rank to get some leaves the last ranks without.
    """
    return _row_blocks(table, ranks, 0, table.embedding_dim)


def by_columns(table: Table, ranks: Sequence[int]) -> tuple[Block, ...]:
    """column_wise, and table_column_wise over ranks of one node: runs of columns that differ by COLUMN_STEP at most.

    A table with too few columns leaves some ranks without.
    """
    return tuple(
        Block(rank, 0, table.num_rows, first, behind - first)
        for rank, (first, behind) in zip(ranks, _columns(table, len(ranks)), strict=True)
        if behind > first
    )


def by_grid(table: Table, nodes: Sequence[Sequence[int]]) -> tuple[Block, ...]:
    """grid: runs of columns, one a node; each split by rows over the ranks of its node."""
    return tuple(
        block
        for ranks, (first, behind) in zip(nodes, _columns(table, len(nodes)), strict=True)
        if behind > first
        for block in _row_blocks(table, ranks, first, behind - first)
    )


def _row_blocks(table: Table, ranks: Sequence[int], first_column: int, num_columns: int) -> tuple[Block, ...]:
    size = -(-table.num_rows // len(ranks))
    return tuple(
        Block(rank, first, min(size, table.num_rows - first), first_column, num_columns)
        for rank, first in zip(ranks, range(0, table.num_rows, size), strict=False)
    )


def _columns(table: Table, num_parts: int) -> list[tuple[int, int]]:
    step = 1 if table.embedding_dim % COLUMN_STEP else COLUMN_STEP
    num_steps = table.embedding_dim // step
    return [
        (number * num_steps // num_parts * step, (number + 1) * num_steps // num_parts * step)
        for number in range(num_parts)
    ]
