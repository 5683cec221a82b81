"""Estimates of the time of a step, term by term: of a shard on its owner, of a copy, and of the dense part.

Every term is bytes over a bandwidth, and on CPUs some time for each id as well. Rows are read in random order, at
ROW_EFFICIENCY of the bandwidth of a copy. How often ids repeat is not known without the data: the distinct rows that an
update writes are counted as if ids were drawn evenly. Letters: B samples of a step on all ranks, b on one rank.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sharding.planner.memory_estimator import ID_BYTES
from sharding.planner.types import FLOAT_BYTES, PlanRequest, Table, TablePlan, count_row_bytes, count_state_bytes

ROW_EFFICIENCY = {"cpu": 0.5, "cuda": 0.8}
"""Share of a copy's bandwidth that reading rows of some hundred bytes in random order reaches."""
LOOKUP_SECONDS = {"cpu": 2e-8, "cuda": 0.0}
"""Seconds of one core for each id in a lookup, in addition to the time for the bytes of its row; measured with the
native operators at rows of 256 bytes."""
UPDATE_SECONDS = {"cpu": 2e-8, "cuda": 0.0}
"""Seconds of one core for each id in an update, which sorts ids, in addition to the bytes of its row."""
COPY_PASSES = 6
"""Number of times a step reads or writes a replicated table whole: its gradient sums are cleared and scaled, then every
row is updated."""
SUM_PASSES = 4
"""Number of times each rank reads or writes, whole, what ranks sum in shared memory: it adds up its part of every
rank's numbers, and copies the parts of all ranks back."""


class StepTime(NamedTuple):
    """Seconds of one rank in a step, by term."""

    ids: float = 0.0
    """Input dist: ids to the owners of their rows."""
    cache: float = 0.0
    """Rows fetched from the memory of the host before a lookup, and those that they displace written back."""
    lookup: float = 0.0
    """Lookup: rows read and pooled."""
    forward: float = 0.0
    """Output dist: pooled embeddings back to the ranks of their samples."""
    dense: float = 0.0
    """Forward and backward pass of all that is not a table."""
    give_back: float = 0.0
    """Gradients of pooled embeddings written to memory from which owners read them or they are sent."""
    backward: float = 0.0
    """Gradient dist: gradients of pooled embeddings to the owners of rows."""
    update: float = 0.0
    """Update of rows and of their optimizer's state."""
    copies_sum: float = 0.0
    """All-reduce of the gradients of replicated tables."""
    all_reduce: float = 0.0
    """All-reduce of dense gradients."""

    @property
    def seconds(self) -> float:
        return sum(self)

    def add(self, other: "StepTime") -> "StepTime":
        """Return the sum of both, term by term."""
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
    def sum(parts: "Iterable[Traffic]") -> "Traffic":
        """Return the sum of all parts, field by field."""
        listed = list(parts)
        return Traffic(**{name: sum(getattr(part, name) for part in listed) for name in Traffic.__dataclass_fields__})


class CostEstimator:
    """The estimator of a step's seconds for the shards of one request's tables."""

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        topology = request.topology
        self._bandwidth = topology.memory_bandwidth
        self._row_bandwidth = topology.memory_bandwidth * ROW_EFFICIENCY[topology.device]
        self._lookup_seconds = LOOKUP_SECONDS[topology.device] / topology.cores_per_rank
        self._update_seconds = UPDATE_SECONDS[topology.device] / topology.cores_per_rank
        self._size = request.global_size
        self._share = request.share_size

    def estimate_shard(self, table: Table, num_rows: int, num_columns: int) -> StepTime:
        """Return the time that a shard takes its owner."""
        num_ids = self._size * table.ids_per_sample
        # Ids are assumed to be spread evenly over rows; a shard of columns gets all of them.
        num_own = num_ids * num_rows / table.num_rows
        row_bytes = count_row_bytes(table.dtype, num_columns)
        state = count_state_bytes(self._request.optimizer, 1, num_columns)
        update = self._estimate_update_seconds(num_own, num_rows, num_columns, row_bytes + state)
        if self._request.transport == "memory":
            # The owner only updates, after a scan of the ids of all ranks for its rows. Each rank does its own lookups.
            return StepTime(update=update + num_ids * ID_BYTES / self._bandwidth)
        # The owner pools for all B samples, also for those without an id in its rows.
        pooled = self._size * table.embeddings_per_sample * num_columns
        read = num_own * (row_bytes / self._row_bandwidth + self._lookup_seconds)
        read += pooled * FLOAT_BYTES / self._bandwidth
        cache = self._estimate_cache_seconds(table, num_own, num_rows, num_columns)
        if not self._request.is_exchanged:
            return StepTime(cache=cache, lookup=read, update=update)
        topology = self._request.topology
        # Gradients come back as pooled embeddings leave: as many numbers, in the same format.
        travel = topology.estimate_all_to_all_seconds(pooled * self._request.exchange_bytes)
        ids = topology.estimate_all_to_all_seconds(self._count_id_bytes(table, num_own, num_rows))
        return StepTime(ids=ids, cache=cache, lookup=read, forward=travel, backward=travel, update=update)

    def _count_id_bytes(self, table: Table, num_ids: float, num_rows: int) -> float:
        """Count the bytes of the input dist of a shard: ids, and for every embedding how many it has."""
        of_lengths = self._size * table.embeddings_per_sample * self._request.length_bytes
        return num_ids * self._request.count_id_bytes(num_rows) + of_lengths

    def _estimate_update_seconds(self, num_ids: float, num_rows: int, num_columns: int, row_bytes: int) -> float:
        """Return the seconds to add up the gradients of `num_ids` ids by row, and to write each row once.

        row_bytes: of a row and its state.
        """
        gradients = num_ids * num_columns * FLOAT_BYTES
        num_distinct = _count_distinct_rows(num_ids, num_rows)
        # Rows and their state are read and written, in random order; gradients are read in sequence.
        rows = 2 * num_distinct * row_bytes / self._row_bandwidth
        return gradients / self._bandwidth + rows + num_ids * self._update_seconds

    def _estimate_cache_seconds(self, table: Table, num_ids: float, num_rows: int, num_columns: int) -> float:
        """Return the seconds in which a GPU fetches the rows of a batch missing in its cache; 0 without a cache.

        Rows are counted as if ids were drawn evenly: the cache has its share of the rows that a batch names. Each row
        fetched displaces one that an update has changed; it goes the other way at the same time.
        """
        if not table.is_cached:
            return 0.0
        num_distinct = _count_distinct_rows(num_ids, num_rows)
        num_moved = (1 - table.cache_share) * num_distinct
        if self._request.optimizer == "adagrad":
            # Its numbers for each weight are never cached: every update reads and writes them on the host.
            num_moved += num_distinct
        return num_moved * num_columns * FLOAT_BYTES / self._request.topology.host_bandwidth

    def estimate_split_table(self, table: Table, num_row_ranges: int) -> StepTime:
        """Return the time that a table takes every rank if it is not replicated, whoever owns its shards.

        Each rank writes the gradients of its samples to memory from which owners read them or they are sent. In one
        memory it looks up its own samples in all ranges of rows, too; over the network owners look up, and each rank
        copies what has arrived to the memory of a chunk.
        """
        if self._request.transport == "torchrec":
            return NO_TIME
        numbers = self._share * table.embeddings_per_sample * table.embedding_dim
        # Gradients are read in fp32 and written in the format of the exchange.
        give_back = numbers * (FLOAT_BYTES + self._request.exchange_bytes) / self._bandwidth
        if self._request.transport == "network":
            return StepTime(lookup=num_row_ranges * give_back, give_back=num_row_ranges * give_back)
        num_ids = self._share * table.ids_per_sample
        # Each range of rows is a separate lookup, which scans all ids for its own.
        scan = num_row_ranges * num_ids * ID_BYTES / self._bandwidth
        return StepTime(lookup=self._estimate_share_lookup_seconds(table) + scan, give_back=give_back)

    def estimate_copy(self, table: Table) -> StepTime:
        """Return the time that a replicated table takes every rank.

        Each rank sums the gradients of its b samples by row, ranks sum these, and each updates the whole table.
        """
        num_bytes, dim = table.weight_bytes, table.embedding_dim
        state = count_state_bytes(self._request.optimizer, table.num_rows, dim)
        # Summing by row costs as much as an update without state: it writes gradient sums instead of weights.
        num_ids = self._share * table.ids_per_sample
        update = self._estimate_update_seconds(num_ids, table.num_rows, dim, dim * FLOAT_BYTES)
        # All rows are stepped in sequence, at the full bandwidth, also those without a gradient.
        update += (COPY_PASSES * num_bytes + 2 * state) / self._bandwidth
        return StepTime(
            lookup=self._estimate_share_lookup_seconds(table),
            # Gradients [b, D] are read from the dense part and written to a buffer.
            give_back=2 * self._share * table.embeddings_per_sample * dim * FLOAT_BYTES / self._bandwidth,
            update=update,
            copies_sum=self._request.topology.estimate_all_reduce_seconds(num_bytes),
        )

    def _estimate_share_lookup_seconds(self, table: Table) -> float:
        """Return the seconds in which a rank looks up its own b samples in the whole table."""
        row_bytes = count_row_bytes(table.dtype, table.embedding_dim)
        read = table.ids_per_sample * (row_bytes / self._row_bandwidth + self._lookup_seconds)
        written = table.embeddings_per_sample * table.embedding_dim * FLOAT_BYTES / self._bandwidth
        return self._share * (read + written)

    @property
    def dense(self) -> StepTime:
        """Time of every rank for all that is not a table."""
        dense, flops = self._request.dense, self._request.topology.flops
        return StepTime(
            dense=dense.flops / flops if flops else 0.0,
            all_reduce=self._estimate_dense_sum_seconds(dense.sum_bytes),
        )

    def _estimate_dense_sum_seconds(self, num_bytes: int) -> float:
        topology = self._request.topology
        if self._request.is_exchanged:
            return topology.estimate_all_reduce_seconds(num_bytes)
        # In one memory ranks sum in passes over it; a single rank has nothing to sum.
        return SUM_PASSES * num_bytes / self._bandwidth if topology.world_size > 1 else 0.0

    def estimate_traffic(self, plan: TablePlan) -> Traffic:
        """Return the bytes that one table sends over links; what stays on its rank does not count."""
        request = self._request
        world_size = request.topology.world_size
        if not request.is_exchanged:
            return Traffic()
        # Samples are spread evenly over ranks: 1 / W of everything has the owner as its destination.
        leaving = (world_size - 1) / world_size
        table = plan.table
        if plan.is_replicated:
            # A ring all-reduce sends each byte twice, in a reduce-scatter and an all-gather.
            return Traffic(all_reduce=2 * leaving * table.weight_bytes * world_size)
        num_ids = self._size * table.ids_per_sample
        ids = sum(self._count_id_bytes(table, num_ids * b.num_rows / table.num_rows, b.num_rows) for b in plan.blocks)
        num_embeddings = self._size * table.embeddings_per_sample
        pooled = sum(num_embeddings * block.num_columns for block in plan.blocks) * request.exchange_bytes
        return Traffic(ids=leaving * ids, forward=leaving * pooled, backward=leaving * pooled)


def _count_distinct_rows(num_ids: float, num_rows: int) -> float:
    """Return the expected number of distinct rows among ids that are drawn evenly from R rows: R (1 - exp(-n / R))."""
    # expm1 keeps the digits where a huge table gets few ids, and the exponential is close to 0.
    return num_rows * -math.expm1(-num_ids / num_rows)
