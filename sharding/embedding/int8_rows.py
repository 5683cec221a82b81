"""Rows of tables in int8: the numbers of a row in 8 bits each, with a scale and an offset of its own in fp32.

The format is FBGEMM's, which exported models in int8 have too: x = s q + z. `sharding/native/tables/int8_row.h` has the
update: it reads a row as fp32, and writes it back with stochastic rounding. Here rows are written once, from drawn or
loaded numbers, and so rounded to the nearest number of their grid.
"""

import hashlib

import torch

from sharding.embedding.shard import ShardSpec
from sharding.planner.types import GRID_BYTES

_LARGEST = 255
_SMALLEST_SCALE = 1e-30
_ROW_STEP = 0x9E3779B97F4A7C15
"""Step of the counter from one row to the next, as the native operator has it."""


def to_stored(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return rows [n, C] in fp32 as a table keeps them: as they are, or [n, C + 8] bytes if `dtype` is uint8."""
    if dtype != torch.uint8:
        return rows
    if not len(rows):
        # torch views no bytes of an empty tensor.
        return rows.new_empty(0, rows.shape[1] + GRID_BYTES, dtype=torch.uint8)
    offsets = rows.amin(dim=1, keepdim=True) + 0.0  # no negative zero
    scales = (rows.amax(dim=1, keepdim=True) - offsets) / _LARGEST
    # Rounded up to 16 bits, so that products with 8 bits are exact; two units of the last place above one of these are
    # the rounding of a row on its own grid.
    scales = ((scales.view(torch.int32) + 0xFD) & ~0xFF).view(torch.float32)
    scales[scales < _SMALLEST_SCALE] = 0.0
    places = torch.where(scales > 0, (rows - offsets) / scales, 0.0).round_().clamp_(max=_LARGEST)
    return torch.cat([places.to(torch.uint8), scales.view(torch.uint8), offsets.view(torch.uint8)], dim=1)


def to_fp32(rows: torch.Tensor) -> torch.Tensor:
    """Return the numbers [n, C] in fp32 of rows that a table keeps in either format."""
    return torch.ops.quantized.embedding_bag_byte_unpack(rows) if rows.dtype == torch.uint8 else rows


def make_rounding_key(seed: int, update: int, spec: ShardSpec) -> int:
    """Return the key of the random bits of one update of a shard, as a signed number of 64 bits.

    The bits of a weight are a function of the seed, the number of the update, the table's name, and the row and the
    column in the whole table: neither ranks nor plans change them.
    """
    digest = hashlib.blake2b(f"rounding/{seed}/{update}/{spec.table.name}".encode(), digest_size=8).digest()
    key = (int.from_bytes(digest, "little") + _ROW_STEP * spec.block.first_row) % 2**64
    return key - 2**64 if key >= 2**63 else key
