"""Bytes of a shard whose table stays in the memory of the host while a GPU caches rows of it.

TorchRec calls this compute kernel fused_uvm_caching. Its cache is FBGEMM's, set-associative, with the rows that were
used last (LRU); what a cache takes is counted as FBGEMM allocates it (`split_table_batched_embeddings_ops_training`,
`_apply_cache_state` and `construct_split_state`).
"""

import math

from sharding.planner.types import (
    TableDtype,
    TableOptimizerName,
    count_row_bytes,
    count_state_bytes,
    count_weight_and_state_bytes,
)

SLOT_BYTES = 16
"""Bytes of the GPU for each row that the cache has room for, beside its weights: which row it is, and its last use."""
INDEX_BYTES = 4
"""Bytes of the GPU for each row of a cached table: the number of its table."""
START_BYTES = 28
"""Bytes of the host for each row of a cached table while FBGEMM makes the list of `INDEX_BYTES`, in Python."""


def count_cache_bytes(cache_share: float, num_rows: int, num_columns: int, dtype: TableDtype) -> int:
    """Return the bytes of the GPU for the cached weights of a shard, or for all of them if nothing is cached."""
    return math.ceil(cache_share * num_rows) * count_row_bytes(dtype, num_columns)


def count_cache_index_bytes(cache_share: float, num_rows: int) -> int:
    """Return the bytes of the GPU with which the rows of a cached shard are found; 0 if nothing is cached."""
    return math.ceil(cache_share * num_rows) * SLOT_BYTES + num_rows * INDEX_BYTES if cache_share < 1 else 0


def count_device_state_bytes(optimizer: TableOptimizerName, cache_share: float, num_rows: int, num_columns: int) -> int:
    """Return the bytes of a shard's optimizer state on its rank's device.

    FBGEMM keeps a number for each row of a cached table on the GPU, and a number for each weight on the host.
    """
    is_on_host = cache_share < 1 and optimizer == "adagrad"
    return 0 if is_on_host else count_state_bytes(optimizer, num_rows, num_columns)


def count_device_bytes(
    optimizer: TableOptimizerName, cache_share: float, num_rows: int, num_columns: int, dtype: TableDtype
) -> int:
    """Return the bytes of a shard's weights and state on its rank's device, with what finds the rows in a cache."""
    return (
        count_cache_bytes(cache_share, num_rows, num_columns, dtype)
        + count_cache_index_bytes(cache_share, num_rows)
        + count_device_state_bytes(optimizer, cache_share, num_rows, num_columns)
    )


def count_host_bytes(optimizer: TableOptimizerName, cache_share: float, num_rows: int, num_columns: int) -> int:
    """Return the bytes of a cached shard in the memory of the host; 0 if nothing is cached.

    Weights, state that is not on the GPU, and what FBGEMM needs at the start: later a checkpoint may use that memory.
    """
    if cache_share == 1:
        return 0
    of_all = count_weight_and_state_bytes(optimizer, num_rows, num_columns)
    kept = of_all - count_device_state_bytes(optimizer, cache_share, num_rows, num_columns)
    return kept + num_rows * START_BYTES
