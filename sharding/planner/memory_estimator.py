"""What a plan takes of the memory of its ranks: weights, optimizer's state, and what a step keeps beside them.

Counted as the tables keep it; a test holds the sums against the buffers of a real batch. On CPUs by the own operators,
on GPUs by FBGEMM's, which look a whole batch up at once.
"""

import math
from collections.abc import Iterable, Sequence

from sharding.planner.request import PlanRequest
from sharding.planner.slice_size import SLICES_IN_FLIGHT, slice_size
from sharding.planner.types import FLOAT_BYTES, Block, Table, TablePlan, weight_and_state_bytes

ID_BYTES = 8
LENGTH_BYTES = 4
NUM_ID_BATCHES = 2
"""Batches whose ids are with the owners of their rows: this one's and the next one's."""
SORTED_BYTES = {"cpu": 16, "cuda": 40}
"""Of one id while an update sorts."""


class MemoryEstimator:
    """Of the blocks of one request's tables."""

    def __init__(self, request: PlanRequest, split_columns: int) -> None:
        """split_columns: of all blocks of tables that are split, or fewer: then slices are taken for larger."""
        self._request = request
        self._share = math.ceil(request.share_size)
        self._is_fbgemm = request.topology.device == "cuda"
        self._in_flight = self._samples_in_flight(split_columns)

    @classmethod
    def of_plan(cls, request: PlanRequest, tables: Sequence[TablePlan]) -> "MemoryEstimator":
        """Exactly of one plan."""
        columns = sum(block.num_columns for plan in tables if not plan.is_replicated for block in plan.blocks)
        return cls(request, columns)

    def block(self, table: Table, num_rows: int, num_columns: int) -> int:
        """Bytes of a block on its owner."""
        kept = weight_and_state_bytes(self._request.optimizer, num_rows, num_columns)
        return kept + self.block_buffers(table, num_rows, num_columns)

    def block_buffers(self, table: Table, num_rows: int, num_columns: int) -> int:
        """Of that what is neither weights nor state, which in one memory is the same on every rank."""
        request = self._request
        if request.transport == "memory":
            return 0
        num_ids = request.global_size * table.ids_per_sample * num_rows / table.num_rows
        ids = NUM_ID_BATCHES * ID_BYTES * (num_ids + request.global_size)
        leaving = self._in_flight * request.topology.world_size
        wire_bytes, is_narrow = request.exchange_bytes, request.exchange_bytes < FLOAT_BYTES
        if self._is_fbgemm:
            # Ids and offsets once more, shard by shard. What was looked up is the place of its gradient too.
            ids += num_ids * (ID_BYTES + SORTED_BYTES["cuda"]) + request.global_size * (ID_BYTES + LENGTH_BYTES)
            numbers = request.global_size * (FLOAT_BYTES + is_narrow * wire_bytes) + is_narrow * leaving * wire_bytes
        else:
            # Pooled in fp32, a slice at a time.
            pooled = leaving * wire_bytes + is_narrow * (leaving // SLICES_IN_FLIGHT) * FLOAT_BYTES
            numbers = request.global_size * wire_bytes + pooled
        return math.ceil(ids + numbers * num_columns)

    def copy(self, table: Table) -> int:
        """Bytes of a copy on each rank."""
        kept = weight_and_state_bytes(self._request.optimizer, table.num_rows, table.embedding_dim)
        return kept + self.copy_buffers(table)

    def copy_buffers(self, table: Table) -> int:
        """Of that what is neither weights nor state: gradients of its bags, and their sums by row."""
        of_bags = self._share * (table.embedding_dim * FLOAT_BYTES + ID_BYTES)
        return of_bags + table.weight_bytes

    def stepping(self, table: Table) -> int:
        """Bytes of a copy on each rank while it is stepped."""
        stepping = 0 if self._request.optimizer == "sgd" else table.weight_bytes
        if not self._is_fbgemm:
            return stepping
        # torch sums in float64, for each id.
        of_ids = self._share * (1 + table.ids_per_sample) * table.embedding_dim
        return max(stepping, 2 * table.weight_bytes + math.ceil(2 * FLOAT_BYTES * of_ids))

    def split(self, table: Table, blocks: Sequence[Block]) -> int:
        """Bytes that a table in these blocks takes on every rank besides."""
        wire_bytes = self._request.exchange_bytes
        if self._request.transport == "memory":
            return self._share * table.embedding_dim * wire_bytes
        arriving = 2 * self._in_flight * wire_bytes * sum(block.num_columns for block in blocks)
        leaving = self._share * (table.ids_per_sample * ID_BYTES + len(blocks) * LENGTH_BYTES)
        return math.ceil(arriving + leaving)

    def everywhere(self, copied: Iterable[Table] = ()) -> dict[str, int]:
        """Bytes on every rank, by what they are for, of a plan with these copies: one is stepped after the other."""
        request = self._request
        lengths = [table.ids_per_sample for table in request.tables]
        of_sample = request.num_batches * (sum(lengths) * ID_BYTES + len(lengths) * LENGTH_BYTES)
        if request.transport == "memory":
            of_sample += (sum(lengths) + len(lengths)) * ID_BYTES
        sorting = 0 if self._is_fbgemm else SORTED_BYTES["cpu"] * request.global_size * max(lengths, default=0)
        return {
            "ids": math.ceil(self._share * of_sample),
            "update": math.ceil(sorting) + max(map(self.stepping, copied), default=0),
            **request.dense.memory_bytes,
        }

    def _samples_in_flight(self, split_columns: int) -> int:
        sample_bytes = split_columns * self._request.exchange_bytes
        in_slice = slice_size(self._share, sample_bytes, self._request.chunk_size)
        return min(self._share, SLICES_IN_FLIGHT * in_slice)
