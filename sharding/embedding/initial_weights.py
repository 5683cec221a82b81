"""Initial table weights that do not depend on how a table is split."""

import hashlib

import numpy as np
import torch

from sharding.counter_random import random_bits
from sharding.embedding.int8_rows import to_stored

ROWS_PER_BLOCK = 4096
"""Rows that one generator draws; a shard draws every block of rows that it touches."""


def fill_uniform(
    shard: torch.Tensor,
    *,
    table_name: str,
    seed: int,
    row_offset: int,
    column_offset: int,
    num_columns: int,
    bound: float,
    draw: int = 0,
) -> None:
    """Fill `shard`, [rows, columns] of a table or its whole rows in int8, with numbers from U(-bound, bound).

    A weight depends on the seed, the table's name, the draw, and its row and column in the whole table, and on nothing
    else. row_offset, column_offset: first row and column of the shard in the table. num_columns: D of the whole table.
    draw: number of the draw; tables begin with draw 0, and later ones are independent of it.
    """
    end_row = row_offset + shard.shape[0]
    for block in range(row_offset // ROWS_PER_BLOCK, -(-end_row // ROWS_PER_BLOCK)):
        first = block * ROWS_PER_BLOCK
        start, end = max(first, row_offset), min(first + ROWS_PER_BLOCK, end_row)
        generator = torch.Generator().manual_seed(_derive_block_seed(seed, table_name, block, draw))
        drawn = torch.rand(ROWS_PER_BLOCK, num_columns, generator=generator).mul_(2 * bound).sub_(bound)
        columns = slice(column_offset, column_offset + shard.shape[1])
        rows = to_stored(drawn[start - first : end - first, columns], shard.dtype)
        shard[start - row_offset : end - row_offset].copy_(rows)


def draw_rows(table_name: str, seed: int, rows: torch.Tensor, num_columns: int, bound: float) -> torch.Tensor:
    """Draw new weights [n, D] of some rows [n] of a table from U(-bound, bound), each by its own number.

    Few rows of a large table cost no more than that; the blocks of `fill_uniform` would be drawn as a whole.
    """
    digest = hashlib.blake2b(f"rows/{seed}/{table_name}".encode(), digest_size=8).digest()
    counters = rows.cpu().numpy()[:, None] * num_columns + np.arange(num_columns)
    bits = random_bits(int.from_bytes(digest, "little"), counters)
    units = (bits >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
    return torch.from_numpy(units).mul_(2 * bound).sub_(bound)


def _derive_block_seed(seed: int, table_name: str, block: int, draw: int) -> int:
    # The seed is a number, so that no table's name makes the key of a later draw that of another one.
    key = f"{seed}/{table_name}/{block}" if draw == 0 else f"draw {draw}/{seed}/{table_name}/{block}"
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
