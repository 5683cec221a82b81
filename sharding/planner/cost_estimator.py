"""What a block of a table costs a rank in one step, term by term.

Every term is bytes over a bandwidth, and on CPUs some time for each id. Rows are read one by one: ROW_EFFICIENCY of
what a copy reaches. How often ids repeat is not known; rows that an update writes are counted once, as if ids were
drawn evenly.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sharding.planner.memory_estimator import ID_BYTES
from sharding.planner.request import PlanRequest
from sharding.planner.types import FLOAT_BYTES, Table, TablePlan, state_bytes

ROW_EFFICIENCY = {"cpu": 0.5, "cuda": 0.8}
"""Of the bandwidth of a copy, where rows of some hundred bytes are read in no order."""
LOOKUP_SECONDS = {"cpu": 2e-8, "cuda": 0.0}
"""Of one id beside the bytes of its row, on one core: what the own operators took beyond them, at rows of 256 bytes."""
UPDATE_SECONDS = {"cpu": 2e-8, "cuda": 0.0}
"""The same in an update, which sorts ids."""
COPY_PASSES = 6
"""Times that a table of which every rank has a copy is read or written whole in a step: sums are cleared and scaled,
then it is stepped."""
SUM_PASSES = 4
"""About as often what ranks add up in memory is read or written whole by each: its part of all ranks' sums, which it
adds up, and all parts, which are copied back."""


class StepTime(NamedTuple):
    """Seconds of one rank in a step, by term."""

    ids: float = 0.0
    """Ids to the owners of their rows."""
    lookup: float = 0.0
    """Rows read and pooled."""
    forward: float = 0.0
    """Pooled embeddings back to the ranks of their samples."""
    dense: float = 0.0
    """All that is not a table, forward and backward."""
    backward: float = 0.0
    """Gradients of pooled embeddings to the owners, or to where these read them."""
    update: float = 0.0
    """Rows and their optimizer's state."""
    copies_sum: float = 0.0
    """Gradients of replicated tables, summed over ranks."""
    all_reduce: float = 0.0
    """Dense gradients, summed over ranks."""

    @property
    def seconds(self) -> float:
        return sum(self)

    def plus(self, other: "StepTime") -> "StepTime":
        return StepTime(*(a + b for a, b in zip(self, other, strict=True)))


NO_TIME = StepTime()


@dataclass(frozen=True)
class Traffic:
    """Bytes that all ranks together send over links in a step."""

    ids: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    all_reduce: float = 0.0

    @staticmethod
    def total(parts: "Iterable[Traffic]") -> "Traffic":
        listed = list(parts)
        return Traffic(**{name: sum(getattr(part, name) for part in listed) for name in Traffic.__dataclass_fields__})


class CostEstimator:
    """Of the blocks of one request's tables."""

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        topology = request.topology
        self._bandwidth = topology.memory_bandwidth
        self._row_bandwidth = topology.memory_bandwidth * ROW_EFFICIENCY[topology.device]
        self._lookup_seconds = LOOKUP_SECONDS[topology.device] / topology.cores_per_rank
        self._update_seconds = UPDATE_SECONDS[topology.device] / topology.cores_per_rank
        self._size = request.global_size
        self._share = request.share_size

    def block(self, table: Table, num_rows: int, num_columns: int) -> StepTime:
        """Of the rank that owns such a block."""
        num_ids = self._size * table.ids_per_sample
        num_own = num_ids * num_rows / table.num_rows
        state = state_bytes(self._request.optimizer, 1, num_columns)
        update = self._update(num_own, num_rows, num_columns, state)
        if self._request.transport == "memory":
            # Owners look through the ids of all ranks for their own.
            return StepTime(update=update + num_ids * ID_BYTES / self._bandwidth)
        pooled = self._size * num_columns
        read = num_own * (num_columns * FLOAT_BYTES / self._row_bandwidth + self._lookup_seconds)
        read += pooled * FLOAT_BYTES / self._bandwidth
        if not self._request.is_exchanged:
            return StepTime(lookup=read, update=update)
        topology = self._request.topology
        travel = topology.seconds_to_all(pooled * self._request.exchange_bytes)
        return StepTime(topology.seconds_to_all(num_own * ID_BYTES), read, travel, 0.0, travel, update)

    def _update(self, num_ids: float, num_rows: int, num_columns: int, row_state_bytes: int) -> float:
        """Of the gradients of so many ids, each added to its row once."""
        gradients = num_ids * num_columns * FLOAT_BYTES
        num_distinct = num_rows * -math.expm1(-num_ids / num_rows)
        row_bytes = num_columns * FLOAT_BYTES + row_state_bytes
        rows = 2 * num_distinct * row_bytes / self._row_bandwidth
        return gradients / self._bandwidth + rows + num_ids * self._update_seconds

    def everywhere(self, table: Table, num_row_parts: int) -> StepTime:
        """Of every rank, owner or not: in one memory all look their own samples up, in each range of rows,
        and lay gradients down."""
        if self._request.transport != "memory":
            return NO_TIME
        num_ids = self._share * table.ids_per_sample
        scan = num_row_parts * num_ids * ID_BYTES / self._bandwidth
        numbers = self._share * table.embedding_dim
        given_back = numbers * (FLOAT_BYTES + self._request.exchange_bytes) / self._bandwidth
        return StepTime(lookup=self._own_lookup(table) + scan, backward=given_back)

    def replicated(self, table: Table) -> StepTime:
        """Of every rank, where each has a copy: it sums the gradients of its samples row by row, and updates all of the
        table from the sum over ranks."""
        num_bytes, dim = table.weight_bytes, table.embedding_dim
        state = state_bytes(self._request.optimizer, table.num_rows, dim)
        update = self._update(self._share * table.ids_per_sample, table.num_rows, dim, 0)
        update += (COPY_PASSES * num_bytes + 2 * state) / self._bandwidth
        return StepTime(
            lookup=self._own_lookup(table),
            backward=2 * self._share * dim * FLOAT_BYTES / self._bandwidth,
            update=update,
            copies_sum=self._request.topology.seconds_to_sum(num_bytes),
        )

    def _own_lookup(self, table: Table) -> float:
        row_bytes = table.embedding_dim * FLOAT_BYTES
        read = table.ids_per_sample * (row_bytes / self._row_bandwidth + self._lookup_seconds)
        return self._share * (read + row_bytes / self._bandwidth)

    @property
    def dense(self) -> StepTime:
        """Of every rank, for what is not a table."""
        dense, flops = self._request.dense, self._request.topology.flops
        return StepTime(
            dense=dense.flops / flops if flops else 0.0,
            all_reduce=self._seconds_to_sum(dense.sum_bytes),
        )

    def _seconds_to_sum(self, num_bytes: int) -> float:
        topology = self._request.topology
        if self._request.is_exchanged:
            return topology.seconds_to_sum(num_bytes)
        return SUM_PASSES * num_bytes / self._bandwidth if topology.world_size > 1 else 0.0

    def traffic(self, plan: TablePlan) -> Traffic:
        """Of one table. What stays on its rank is not counted."""
        request = self._request
        world_size = request.topology.world_size
        if not request.is_exchanged:
            return Traffic()
        leaving = (world_size - 1) / world_size
        table = plan.table
        if plan.is_replicated:
            return Traffic(all_reduce=2 * leaving * table.weight_bytes * world_size)
        num_ids = sum(self._size * table.ids_per_sample * block.num_rows / table.num_rows for block in plan.blocks)
        pooled = sum(self._size * block.num_columns for block in plan.blocks) * request.exchange_bytes
        return Traffic(ids=leaving * num_ids * ID_BYTES, forward=leaving * pooled, backward=leaving * pooled)
