"""Embedding tables sharded over ranks: pooled lookup, and one fused update for the global batch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.embedding.fused_optimizer import FusedUpdateParams, TableOptimizer
from sharding.embedding.initial_weights import draw_rows, fill_uniform
from sharding.embedding.int8_rows import to_stored
from sharding.embedding.make_transport import TransportChoice, TransportMaker, choose_transport
from sharding.embedding.mapped_shards import MappedFiles
from sharding.embedding.shard import Shard
from sharding.embedding.state_dict import NamedTables, TableStateDict, arrange_by_table, make_state_dict
from sharding.embedding.transport import InputDistHandle, PooledShare
from sharding.jagged import JaggedIds, SequenceShape
from sharding.planner import ExchangeType, Plan

EXCHANGE_DTYPES: dict[ExchangeType, torch.dtype] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


@dataclass(frozen=True)
class BatchInputDist:
    """The input dist of one batch, over all transports."""

    ids: JaggedIds[torch.Tensor]
    handles: list[InputDistHandle]
    """One a transport."""

    def wait(self) -> None:
        """Wait until no id is in flight."""
        for handle in self.handles:
            handle.wait()


class ShardedTables:
    """Embedding tables on all ranks, one feature a table. All ranks make the same calls in the same order.

    Further features may be sequences, whose ids are rows of these tables: they come after the features of the tables in
    ids, and the L embeddings of each after the pooled embeddings in a chunk [c, F, D]. D is the dimension of the widest
    table; in a chunk a narrower one has the first columns, and the others stay as they are. There may be no table: then
    nothing is exchanged, updated or saved.
    """

    def __init__(
        self,
        plan: Plan,
        optimizer: TableOptimizer,
        ranks: Ranks,
        *,
        exchange_dtype: ExchangeType,
        seed: int,
        chunk_size: int,
        pooling: Literal["sum", "mean"] = "sum",
        transport: TransportChoice = "auto",
        mapped: MappedFiles | None = None,
        sequences: Sequence[SequenceShape] = (),
    ) -> None:
        """Allocate and initialise the shards of this rank. Collective. Raises TransportError, MappedFilesError.

        chunk_size: c at most, samples that are read at a time. pooling: of the embeddings of a bag; means are taken on
        the rank of the sample, where the lengths are, so that they depend on neither plan nor kernel. mapped:
        files for all tables but copies, which only the memory transport can use; None for memory alone. sequences:
        shapes of further features, which have no tables of their own.
        """
        self._plan, self._optimizer, self._ranks, self._pooling = plan, optimizer, ranks, pooling
        self._seed = seed
        self._num_updates = torch.zeros(1, dtype=torch.int64)
        self._dtype = EXCHANGE_DTYPES[exchange_dtype]
        # Only one transport can use files: if it does not work here, its error says why.
        choice = transport if mapped is None else "memory"
        needs_counts, has_int8 = optimizer.count_rule.needs_counts, self._has_int8
        name = choose_transport(choice, ranks, self._dtype, needs_counts=needs_counts, has_int8=has_int8)
        self.is_in_memory = name == "memory"
        """Whether all ranks share memory, also if there are no tables."""
        maker = TransportMaker(optimizer, ranks, self._dtype, name, mapped)
        self._transports = (
            maker.make_with_sequences(plan, chunk_size, sequences) if sequences else maker.make(plan, chunk_size)
        )
        num_columns = len(plan.tables) + sum(shape.max_length for shape in sequences)
        self._chunk_buffer = _ChunkBuffer(num_columns, plan.embedding_dim, ranks.device)
        self._begin_rows(0)

    @property
    def _has_int8(self) -> bool:
        return any(planned.table.dtype == "int8" for planned in self._plan.tables)

    @property
    def id_dtype(self) -> torch.dtype:
        """Dtype in which ids come from the host: int32 for GPUs if the rows of every table can be counted in it."""
        is_small = all(planned.table.num_rows < 2**31 for planned in self._plan.tables)
        return torch.int32 if self._ranks.device.type == "cuda" and is_small else torch.int64

    def start_input_dist(self, ids: JaggedIds[torch.Tensor]) -> BatchInputDist:
        """Start to send the ids of this rank's share of a batch; the handle is for `lookup`. Collective."""
        return BatchInputDist(ids, [transport.start_input_dist(ids) for transport in self._transports])

    def lookup(self, handle: BatchInputDist, full_rows: int, learning_rate: float = 0.0) -> "PooledBatch":
        """Look up the embeddings of an input dist. Collective.

        full_rows: rows of a full global batch, which the sum of the samples' gradients is divided by. learning_rate: of
        the update to come, for kernels that fix it here (FBGEMM's). Under `torch.no_grad` nothing is kept for one.
        """
        scaled_rate = self._optimizer.scale_learning_rate(learning_rate, self._optimizer.get_scale(full_rows))
        shares = [
            transport.lookup(of_transport, scaled_rate)
            for transport, of_transport in zip(self._transports, handle.handles, strict=True)
        ]
        has_means = self._pooling == "mean" and not handle.ids.measure_sizes().are_single
        lengths = handle.ids.lengths[: len(self._plan.tables)] if has_means else None
        is_mean = self._pooling == "mean"
        return PooledBatch(
            shares,
            self._optimizer,
            full_rows,
            self._dtype,
            self._chunk_buffer,
            lengths,
            is_mean=is_mean,
            seed=self._seed,
            num_updates=self._num_updates if self._has_int8 else None,
        )

    def state_dict(self) -> TableStateDict:
        """Return weights and optimizer state as torch.distributed.checkpoint saves them, and loads them in place.

        For use until the next lookup, as `list_shards`.
        """
        state = make_state_dict(self._plan, self.list_shards(), self._optimizer, self._ranks.table_group)
        if self._has_int8:
            # Later updates then round as those of a run that never stopped.
            state["rounding"] = {"num_updates": self._num_updates}
        return state

    def arrange_by_table(self, tensors: Sequence[torch.Tensor]) -> NamedTables:
        """Return `tensors`, one for each of `list_shards` and of its shape, as `state_dict` returns the weights."""
        return arrange_by_table(self._plan, self.list_shards(), tensors, self._ranks.table_group)

    def list_shards(self) -> list[Shard]:
        """List this rank's shards, for reading and writing until the next lookup.

        Nothing is copied; only rows that a GPU caches are written back.
        """
        return [shard for transport in self._transports for shard in transport.list_shards()]

    @torch.no_grad()
    def reset(self, draw: int) -> None:
        """Draw all weights anew, and let the optimizer's state begin anew: no row was ever updated then. Collective.

        draw: number of the draw, above 0: weights are a function of it, the seed and the table. Ids may be in flight,
        but no lookup.
        """
        # In shared memory other ranks read this rank's rows: their last lookup ends first.
        dist.barrier(self._ranks.table_group)
        self._begin_rows(draw)

    @torch.no_grad()
    def reset_rows(self, rows: Mapping[int, torch.Tensor]) -> None:
        """Let some rows begin anew, with new weights and without optimizer state. Collective.

        The weights of a row are a function of the seed, the table and its number. rows: ascending row numbers by the
        number of the table, the same on every rank. Ids may be in flight, but no lookup.
        """
        dist.barrier(self._ranks.table_group)
        for shard in self.list_shards():
            if (of_table := rows.get(shard.spec.feature)) is None:
                continue
            table, block = shard.spec.table, shard.spec.block
            local = of_table[(of_table >= block.first_row) & (of_table < block.first_row + block.num_rows)]
            places = (local - block.first_row).to(shard.weights.device)
            if shard.state.numel():
                shard.state[places] = self._optimizer.initial_state
            drawn = draw_rows(table.name, self._seed, local, table.embedding_dim, 1 / math.sqrt(table.num_rows))
            shard.weights[places] = to_stored(drawn[:, shard.spec.columns], shard.spec.dtype).to(shard.weights.device)
        dist.barrier(self._ranks.table_group)

    @torch.no_grad()
    def _begin_rows(self, draw: int) -> None:
        """Set all rows to how they begin: state, and weights from U(-1/sqrt(rows), 1/sqrt(rows)). Collective.

        DLRM's reference implementation has these bounds.
        """
        initial_state = self._optimizer.initial_state
        for shard in self.list_shards():
            # New state is zero already, in memory that nothing has touched yet.
            if draw or initial_state:
                shard.state.fill_(initial_state)
            table, block = shard.spec.table, shard.spec.block
            fill_uniform(
                shard.weights,
                table_name=table.name,
                seed=self._seed,
                row_offset=block.first_row,
                column_offset=block.first_column,
                num_columns=table.embedding_dim,
                bound=1 / math.sqrt(table.num_rows),
                draw=draw,
            )
        # In shared memory other ranks may read them at once.
        dist.barrier(self._ranks.table_group)


class PooledBatch:
    """Pooled embeddings of this rank's share of a batch, read chunk by chunk, and the way back for their gradients."""

    def __init__(
        self,
        shares: list[PooledShare],
        optimizer: TableOptimizer,
        full_rows: int,
        dtype: torch.dtype,
        buffer: "_ChunkBuffer",
        lengths: torch.Tensor | None,
        *,
        is_mean: bool,
        seed: int,
        num_updates: torch.Tensor | None,
    ) -> None:
        """Keep what reading needs. full_rows: as for `lookup`. dtype: of the exchange.

        lengths: [T, b] int32, where sums of the bags of T tables are made means. is_mean: whether they may be, in this
        batch or another. seed: of the tables. num_updates: [1], number of their updates, which
        this batch's increases; None if nothing is rounded by it.
        """
        self._shares, self._optimizer, self._full_rows = shares, optimizer, full_rows
        self._dtype, self._buffer, self._lengths = dtype, buffer, lengths
        self._seed, self._num_updates = seed, num_updates
        self.gradient_dtype = torch.float32 if is_mean else dtype
        """Dtype in which `write_gradient` loses nothing more: gradients of means are rounded for the exchange after
        they are divided."""
        # Gradients of a smaller batch than that of S would exceed fp16's largest number, 65,504, if they were at S.
        self.scale = min(optimizer.gradient_scale, float(2 ** round(math.log2(full_rows))))
        """Scale of gradients in transit: `write_gradient` takes `scale` times d(mean loss) / d(pooled)."""

    def read_chunk(self, start: int, end: int, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the pooled embeddings [c, F, D] of samples [start, end), [c, 0, 0] if there are no features.

        out: where to write them; else they are valid until the next chunk is read.
        """
        chunk = self._buffer.view(end - start) if out is None else out
        for share in self._shares:
            share.read_chunk(start, end, chunk)
        if self._lengths is not None:
            chunk[:, : len(self._lengths)] /= self._count_ids(start, end)
        return chunk

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> torch.Tensor:
        """Store the gradient [c, F, D] of samples [start, end), at `scale` times the true one.

        Returns 0, or NaN where some of it is not finite, or too large for the dtype of the exchange.
        """
        if self._lengths is not None:
            gradient = gradient.clone()
            gradient[:, : len(self._lengths)] /= self._count_ids(start, end)
        gradient = gradient.to(self._dtype)
        for share in self._shares:
            share.write_gradient(start, end, gradient)
        # 0 times a number is 0; 0 times infinity or NaN is NaN. No wait for the device, as a comparison would need.
        return 0.0 * gradient.sum(dtype=torch.float32)

    def apply_update(self, learning_rate: float) -> None:
        """Update every table, after a vote that every chunk of every rank has its gradient. Collective.

        learning_rate: of the true gradient, the same that `lookup` was given.
        """
        scale = self._optimizer.get_scale(self._full_rows)
        params = FusedUpdateParams(
            scale=scale,
            learning_rate=self._optimizer.scale_learning_rate(learning_rate, scale),
            gradient_multiplier=scale / self.scale,
            seed=self._seed,
            number=0 if self._num_updates is None else int(self._num_updates),
        )
        if self._num_updates is not None:
            self._num_updates += 1
        for share in self._shares:
            share.apply_update(params)

    def discard(self) -> None:
        """Give up the update of a step that was not finite."""
        for share in self._shares:
            share.discard()

    def _count_ids(self, start: int, end: int) -> torch.Tensor:
        """Count the ids [c, T, 1] that each sum is divided by; 1 for an empty bag, whose sum is zero."""
        assert self._lengths is not None, "the caller wants means"
        return self._lengths[:, start:end].t().clamp(min=1).unsqueeze(2)


class _ChunkBuffer:
    """Memory of one chunk, kept from batch to batch: new memory is slow to touch."""

    def __init__(self, num_features: int, dim: int, device: torch.device) -> None:
        self._buffer = torch.empty(0, num_features, dim, device=device)

    def view(self, num_samples: int) -> torch.Tensor:
        """Return [c, F, D] with any content, but zeros beyond narrow tables; the same memory every time."""
        if len(self._buffer) < num_samples:
            self._buffer = self._buffer.new_zeros(num_samples, *self._buffer.shape[1:])
        return self._buffer[:num_samples].detach()
