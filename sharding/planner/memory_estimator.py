"""Estimates of the memory of a plan: weights, optimizer state, and the buffers of a step on each rank.

Bytes are counted as the tables of `sharding.embedding` allocate them; a test compares the sums with the buffers of a
real batch. TorchRec, with FBGEMM's kernels, looks a whole batch up at once; the native operators work slice by slice.
Letters: B samples of a step on all ranks, b on one rank, c in a chunk, F tables, D columns of a table.
"""

import math
from collections.abc import Iterable, Sequence

from sharding.planner.cache_size import count_device_bytes
from sharding.planner.slice_size import SLICES_IN_FLIGHT, compute_slice_size
from sharding.planner.types import (
    ACTIVATIONS,
    FLOAT_BYTES,
    Block,
    PlanRequest,
    Table,
    TablePlan,
)

ID_BYTES = 8
LENGTH_BYTES = 4
NUM_ID_BATCHES = 2
"""Batches whose ids the owners of their rows hold at once: the input dist of the next batch overlaps this step."""
SORTED_BYTES = {"native": 16, "fbgemm": 40, "fbgemm_narrow": 28}
"""Bytes for each id while an update sorts them, by kernels; narrow: ids of 4 bytes."""
CACHE_ID_BYTES = 36
"""Bytes for each id of a cached table before its lookup: its row's number among all cached rows, the same once more
sorted, and once more without repetitions, 8 each, a copy of 8 for the sort, and 4 for its place in the cache."""
PAGE_BYTES = 4096
PAGE_USE_BYTES = 8
"""Bytes of a rank for each page of its file: the last batch that named it, 4, and as much for a copy."""
RESIDENT_PAGE_BYTES = 64
"""Bytes of a rank for each page of its part of the resident memory, while it looks for those to drop: the numbers of
pages that are in memory, in use, and to go, 8 each, and sorted copies of them."""
NAMED_PAGE_BYTES = 64
"""Bytes for each id of a share while its pages are found: of its row and of the row's state, 8 each, side by side,
together, and sorted."""


class MemoryEstimator:
    """The estimator of bytes for the shards of one request's tables."""

    def __init__(self, request: PlanRequest, split_columns: int) -> None:
        """Estimate for plans whose split tables have `split_columns` columns in all blocks together.

        A smaller number is safe: slices are then counted as larger than they are.
        """
        self._request = request
        # Columns of every table in a chunk [c, F, D], however narrow it is.
        self._chunk_dim = max((table.embedding_dim for table in request.tables), default=0)
        # Rounded up: a batch need not be divisible by the number of ranks.
        self._share = math.ceil(request.share_size)
        self._is_torchrec = request.transport == "torchrec"
        # TorchRec hands ids and pooled embeddings of a single rank on as they are.
        self._is_alone = self._is_torchrec and request.topology.world_size == 1
        # FBGEMM writes bf16 itself where pooled embeddings travel so, on GPUs.
        is_narrow = request.exchange_dtype == "bf16" and request.topology.device == "cuda"
        self._block_bytes = request.exchange_bytes if is_narrow else FLOAT_BYTES
        num_rows = sum(table.num_rows for table in request.tables)
        # GPUs get ids of 4 bytes where these hold all rows, and no table is cached.
        self._has_narrow_ids = (
            self._is_torchrec
            and request.topology.device == "cuda"
            and num_rows < 2**31
            and not any(table.is_cached for table in request.tables)
        )
        self._id_bytes = LENGTH_BYTES if self._has_narrow_ids else ID_BYTES
        self._in_flight = self._count_samples_in_flight(split_columns)

    @classmethod
    def from_plan(cls, request: PlanRequest, tables: Sequence[TablePlan]) -> "MemoryEstimator":
        """Return the estimator with exactly the slices of one plan."""
        columns = sum(block.num_columns for plan in tables if not plan.is_replicated for block in plan.blocks)
        return cls(request, columns)

    def estimate_shard_bytes(self, table: Table, num_rows: int, num_columns: int) -> int:
        """Return the bytes of a shard on its owner: weights, or the cache of them, state and buffers."""
        return self.count_kept_bytes(table, num_rows, num_columns) + self.estimate_shard_buffer_bytes(
            table, num_rows, num_columns
        )

    def count_kept_bytes(self, table: Table, num_rows: int, num_columns: int) -> int:
        """Count the bytes of a shard's weights, or of the cache of them, and state; none of its own if it is in a file.

        The tables in files share what is resident of them: see `estimate_common_bytes`.
        """
        if self._request.is_in_files:
            return 0
        return count_device_bytes(self._request.optimizer, table.cache_share, num_rows, num_columns, table.dtype)

    def estimate_shard_buffer_bytes(self, table: Table, num_rows: int, num_columns: int) -> int:
        """Return the bytes of a shard on its owner that are neither weights nor state: an average, and buffers."""
        average_bytes = FLOAT_BYTES * num_rows * num_columns if self._request.is_averaged else 0
        if self._request.transport == "memory":
            # Every rank looks up its own samples in all shards: buffers do not depend on who owns a shard.
            return average_bytes
        if self._is_torchrec:
            return average_bytes + self._estimate_torchrec_shard_bytes(table, num_rows, num_columns)
        return average_bytes + self._estimate_network_shard_bytes(table, num_rows, num_columns)

    def _estimate_network_shard_bytes(self, table: Table, num_rows: int, num_columns: int) -> int:
        """Return the bytes of a shard's buffers on its owner, where ranks on CPUs exchange by all-to-all."""
        request = self._request
        # Ids are assumed to be spread evenly over rows, so that a shard gets its share of them.
        num_ids = request.global_size * table.ids_per_sample * num_rows / table.num_rows
        num_embeddings = request.global_size * table.embeddings_per_sample
        # Each batch has 8 bytes for each id, and an offset of 8 bytes for each sample, whether it has ids here or not.
        ids = NUM_ID_BATCHES * ID_BYTES * (num_ids + num_embeddings)
        # The packets that they arrive in, of one batch at a time.
        ids += num_ids * request.count_id_bytes(num_rows) + num_embeddings * request.length_bytes
        # Pooled embeddings leave slice by slice; the slices in flight hold samples of every rank.
        leaving = self._count_in_flight(table) * request.topology.world_size
        wire_bytes, is_narrow = request.exchange_bytes, request.exchange_bytes < FLOAT_BYTES
        # The native operators pool one slice at a time in fp32, and cast it where the wire is narrower.
        pooled = leaving * wire_bytes + is_narrow * (leaving // SLICES_IN_FLIGHT) * FLOAT_BYTES
        # Gradients of all B samples stay until the update, in the format of the wire.
        numbers = num_embeddings * wire_bytes + pooled
        return math.ceil(ids + numbers * num_columns)

    def _estimate_torchrec_shard_bytes(self, table: Table, num_rows: int, num_columns: int) -> int:
        """Return the bytes of a shard's buffers on its owner, in TorchRec's tables."""
        size = self._request.global_size * table.embeddings_per_sample
        num_ids = self._request.global_size * table.ids_per_sample * num_rows / table.num_rows
        if self._is_alone:
            # Offsets of the batch that trains.
            ids = size * self._id_bytes
        else:
            # Received ids and their order by shard, of two batches; offsets likewise.
            ids = 2 * NUM_ID_BATCHES * (num_ids * self._id_bytes + size * (LENGTH_BYTES + ID_BYTES))
        ids += num_ids * CACHE_ID_BYTES if table.is_cached else 0
        # The lookup's output of all B samples is kept for its backward pass; on a single rank it is what gradients are
        # written over.
        looked_up = size * num_columns * self._block_bytes
        return math.ceil(ids + looked_up) + self._estimate_torchrec_update_bytes(size, num_ids, num_columns)

    def _estimate_torchrec_update_bytes(self, num_embeddings: float, num_ids: float, num_columns: int) -> int:
        """Return the further bytes of a shard on its owner in an update: gradients that arrive, and sorted ids."""
        gradients = 0 if self._is_alone else num_embeddings * num_columns * self._block_bytes
        return math.ceil(gradients + num_ids * SORTED_BYTES["fbgemm_narrow" if self._has_narrow_ids else "fbgemm"])

    def estimate_copy_bytes(self, table: Table) -> int:
        """Return the bytes of a copy of the table, on each rank: weights, state and buffers."""
        return table.count_bytes(self._request.optimizer) + self.estimate_copy_buffer_bytes(table)

    def estimate_copy_buffer_bytes(self, table: Table) -> int:
        """Return the bytes of a copy that are neither weights nor state: an average if there is one, gradients of b
        samples, and their sum by row.

        The sum has a row for each row of the table: it is all-reduced, and ranks have gradients of different rows.
        """
        of_samples = self._count_own(table) * (table.embedding_dim * FLOAT_BYTES + ID_BYTES)
        return of_samples + table.weight_bytes * (1 + self._request.is_averaged)

    def estimate_copy_update_bytes(self, table: Table) -> int:
        """Return the additional bytes on each rank while the copy of this table is updated."""
        # Adagrad over all rows at once needs a temporary as large as the weights; SGD updates in place.
        scratch = 0 if self._request.optimizer == "sgd" else table.weight_bytes
        if not self._is_torchrec:
            return scratch
        # torch sums gradients by row in float64: the sums, the gradients of b samples, and a gradient for each id.
        expanded = self._share * (table.embeddings_per_sample + table.ids_per_sample) * table.embedding_dim
        return max(scratch, 2 * table.weight_bytes + math.ceil(2 * FLOAT_BYTES * expanded))

    def estimate_split_table_bytes(self, table: Table, blocks: Sequence[Block]) -> int:
        """Return the bytes on every rank, owner or not, of a table that is split into `blocks`."""
        wire_bytes = self._request.exchange_bytes
        if self._request.transport == "memory":
            # Gradients of this rank's pooled embeddings [b, D], where owners read them.
            return self._count_own(table) * self._chunk_dim * wire_bytes
        if self._is_torchrec:
            topology, num_ranges = self._request.topology, len({block.first_row for block in blocks})
            # TorchRec adds up partial embeddings of rows that are split over all ranks (of a node) on their way.
            is_summed = num_ranges in (topology.world_size, topology.ranks_per_node)
            num_columns = table.embedding_dim if is_summed else sum(block.num_columns for block in blocks)
            # A single rank has the block of its lookup, and the ids of its batches.
            if self._is_alone:
                return 0
            # Pooled embeddings, which gradients replace, and the copy of these that leaves.
            arriving = self._count_own(table) * num_columns * (self._block_bytes + wire_bytes)
            # Ids and lengths by TorchRec's features, and once more in the order in which they leave.
            of_lengths = table.embeddings_per_sample * len(blocks) * LENGTH_BYTES
            leaving = 2 * self._share * (table.ids_per_sample * self._id_bytes + of_lengths)
            return math.ceil(arriving + leaving)
        # Slices of pooled embeddings that arrive, and slices of gradients that go back. Each range of rows sends pooled
        # embeddings of its own, which this rank adds up: a table on R ranks by rows arrives R times.
        arriving = 2 * self._count_in_flight(table) * wire_bytes * sum(block.num_columns for block in blocks)
        # Ids of this rank's samples on their way to the owners, and for each shard how many ids a sample has there.
        id_bytes = max(self._request.count_id_bytes(block.num_rows) for block in blocks)
        of_lengths = table.embeddings_per_sample * len(blocks) * self._request.length_bytes
        leaving = self._share * (table.ids_per_sample * id_bytes + of_lengths)
        return math.ceil(arriving + leaving)

    def estimate_common_bytes(self, replicated: Iterable[Table] = ()) -> dict[str, int]:
        """Return the bytes on every rank, by use, of a plan that replicates these tables."""
        request = self._request
        lengths = [table.ids_per_sample for table in request.tables]
        sample_bytes = request.num_batches * (sum(lengths) * self._id_bytes + len(lengths) * LENGTH_BYTES)
        # Ids of sequences sample by sample, and where their embeddings go.
        of_sequences = sum(table.ids_per_sample for table in request.tables if table.has_sequences)
        sample_bytes += NUM_ID_BATCHES * of_sequences * (self._id_bytes + ID_BYTES + LENGTH_BYTES)
        if request.transport == "memory":
            # Ids and offsets once more, in the shared buffer where the other ranks read them.
            num_embeddings = sum(table.embeddings_per_sample for table in request.tables)
            sample_bytes += (sum(lengths) + num_embeddings) * ID_BYTES
        # Tables are updated one after the other, so that only the one with most ids counts; its shard may get the ids
        # of all B samples. FBGEMM sorts those of all tables at once, which is counted with each shard.
        sorting = 0 if self._is_torchrec else SORTED_BYTES["native"] * request.global_size * max(lengths, default=0)
        return {
            "ids": math.ceil(self._share * sample_bytes),
            # Copies too are updated one after the other.
            "update": math.ceil(sorting) + max(map(self.estimate_copy_update_bytes, replicated), default=0),
            **request.dense.memory_bytes,
            **self._estimate_resident_bytes(),
            **self._estimate_gpu_chunk_bytes(),
        }

    def _estimate_resident_bytes(self) -> dict[str, int]:
        """Return the bytes of each rank, by use, for tables in files: what is resident of them, and their pages."""
        request = self._request
        if request.resident_bytes is None:
            return {}
        of_tables = sum(table.count_bytes(request.optimizer) for table in request.tables)
        num_ranks = request.topology.ranks_per_memory_domain
        resident = math.ceil(min(request.resident_bytes, of_tables) / num_ranks)
        pages = math.ceil((PAGE_USE_BYTES * of_tables / num_ranks + RESIDENT_PAGE_BYTES * resident) / PAGE_BYTES)
        named = math.ceil(NAMED_PAGE_BYTES * self._share * sum(table.ids_per_sample for table in request.tables))
        return {"resident tables": resident, "pages of tables": pages + named}

    def _estimate_gpu_chunk_bytes(self) -> dict[str, int]:
        """Return the bytes on every GPU, by use, of a chunk's pooled embeddings [c, F, D], and of its activations.

        The gradients of the pooled embeddings count as activations; on CPUs both do.
        """
        request, dense = self._request, self._request.dense
        if request.topology.device == "cpu" or not self._is_torchrec:
            return {}
        chunk_size = min(request.chunk_size, self._share)
        num_columns = self._chunk_dim * sum(table.embeddings_per_sample for table in request.tables)
        pooled = math.ceil(chunk_size * num_columns * FLOAT_BYTES)
        # The graph of a chunk writes their gradients to memory of their own.
        gradients = pooled if dense.are_activations_kept else 0
        activations = dense.memory_bytes.get(ACTIVATIONS, 0) + gradients - self._count_reused_bytes()
        return {"chunk": pooled, ACTIVATIONS: max(0, activations)}

    def _count_reused_bytes(self) -> int:
        """Count the bytes of an update that take the place of activations.

        None are counted with several ranks, whose updates are not known before the plan.
        """
        request = self._request
        has_copies = "data_parallel" in (request.plan, *(rule.type for rule in request.rules))
        if request.dense.are_activations_kept or not self._is_alone or has_copies:
            return 0
        return sum(
            self._estimate_torchrec_update_bytes(
                request.global_size * table.embeddings_per_sample,
                request.global_size * table.ids_per_sample,
                table.embedding_dim,
            )
            for table in request.tables
        )

    def _count_own(self, table: Table) -> int:
        """Return the embeddings of one rank's samples in a table."""
        return math.ceil(self._share * table.embeddings_per_sample)

    def _count_in_flight(self, table: Table) -> int:
        """Return the embeddings of one rank that are in flight at the same time: all if the table has sequences."""
        return self._count_own(table) if table.has_sequences else self._in_flight

    def _count_samples_in_flight(self, split_columns: int) -> int:
        """Return the samples of one rank whose pooled embeddings are in flight at the same time."""
        sample_bytes = split_columns * self._request.exchange_bytes
        in_slice = compute_slice_size(self._share, sample_bytes, self._request.chunk_size)
        return min(self._share, SLICES_IN_FLIGHT * in_slice)
