"""Tables of ranks that share one machine's memory: nothing is exchanged.

Each rank looks rows up in every rank's shards, a chunk at a time, and writes the gradients of its pooled embeddings
where the other ranks can read them. After the vote of a step every rank updates its own shards from the ids and
gradients of all ranks: tables do not change while any rank reads them, and a batch makes one update.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.comm.shared_memory import SharedBuffer, round_up_to_cache_line, share_buffers
from sharding.embedding import native_ops
from sharding.embedding.fused_optimizer import FusedUpdateParams, TableOptimizer
from sharding.embedding.input_dist import ReadyIds, compute_offsets
from sharding.embedding.mapped_shards import MappedFiles, MappedShards
from sharding.embedding.shard import Shard, ShardSpec, get_state_shape, list_shard_specs
from sharding.jagged import JaggedIds
from sharding.planner import Plan

INDEX = torch.int64
"""Dtype of ids and offsets."""


@dataclass(frozen=True)
class _VisibleShard:
    """Weights of a shard of any rank, mapped into this process."""

    spec: ShardSpec
    weights: torch.Tensor
    """Weights as in `Shard`."""


class SharedBatchBuffer:
    """Offsets of bags, gradients and ids of one rank, which the other ranks need for their updates.

    All are in one shared buffer, ids last, since their number changes from batch to batch. Its rank writes it between
    the lookup and the vote of a step; all ranks read it between the vote and the end of the update.
    """

    def __init__(
        self, buffer: SharedBuffer, num_features: int, gradient_shape: tuple[int, int, int], dtype: torch.dtype
    ) -> None:
        """Lay out `buffer`. gradient_shape: (features whose tables are sharded, b, D). dtype: of the gradients."""
        self.num_samples = gradient_shape[1]
        self._buffer = buffer
        self._first_id_byte = self.count_bytes(num_features, gradient_shape, dtype)
        self.offsets = buffer.view_tensor(INDEX, (num_features * self.num_samples + 1,))
        """[F * b + 1] indices into the ids where each bag begins."""
        self.gradients = buffer.view_tensor(
            dtype, gradient_shape, _count_offset_bytes(num_features * self.num_samples + 1)
        )
        """[features, b, D]: feature first, so that the gradients of one table are contiguous."""

    @staticmethod
    def count_bytes(num_features: int, gradient_shape: tuple[int, int, int], dtype: torch.dtype) -> int:
        """Count the bytes of a buffer without ids."""
        num_sharded, num_samples, dim = gradient_shape
        gradient_bytes = num_sharded * num_samples * dim * dtype.itemsize
        return _count_offset_bytes(num_features * num_samples + 1) + round_up_to_cache_line(gradient_bytes)

    def write_ids(self, ids: JaggedIds[torch.Tensor]) -> None:
        """Write ids and offsets of a batch. Only the rank that owns the buffer calls it."""
        self._buffer.map_at_least(self._first_id_byte + ids.values.nbytes, is_owner=True)
        torch.cumsum(ids.lengths.flatten(), 0, out=self.offsets[1:])
        self.view_ids().copy_(ids.values)

    def view_ids(self) -> torch.Tensor:
        """View the ids [n] int64 that were written last."""
        num_ids = int(self.offsets[-1])
        self._buffer.map_at_least(self._first_id_byte + num_ids * INDEX.itemsize)
        return self._buffer.view_tensor(INDEX, (num_ids,), self._first_id_byte)

    def view_offsets(self, feature: int) -> torch.Tensor:
        """View the offsets [b + 1] of one feature's bags, which index the ids of all features."""
        first = feature * self.num_samples
        return self.offsets[first : first + self.num_samples + 1]


class MemoryTransport:
    """The sharded tables of ranks on one machine."""

    def __init__(
        self,
        plan: Plan,
        optimizer: TableOptimizer,
        ranks: Ranks,
        gradient_dtype: torch.dtype,
        mapped: MappedFiles | None = None,
    ) -> None:
        """Allocate this rank's shards, and map the shards of all ranks. Collective. Raises MappedFilesError.

        gradient_dtype: dtype of gradients until the update. mapped: files for the shards; None for memory alone.
        """
        self._optimizer, self._ranks, self._gradient_dtype = optimizer, ranks, gradient_dtype
        specs = [list_shard_specs(plan, rank, replicated=False) for rank in range(ranks.world_size)]
        own_specs, num_bytes = specs[ranks.rank], sum(map(_count_weight_bytes, specs[ranks.rank]))
        self._mapped = None if mapped is None else MappedShards(specs, optimizer, ranks, mapped)
        if self._mapped is None:
            buffers = share_buffers(ranks.table_group, lambda: SharedBuffer.create(num_bytes))
            states = [torch.zeros(get_state_shape(spec, optimizer)) for spec in own_specs]
        else:
            buffers, states = self._mapped.files, self._mapped.states
        by_rank = [_view_shards(of_rank, buffer) for of_rank, buffer in zip(specs, buffers, strict=True)]
        own = zip(by_rank[ranks.rank], states, strict=True)
        self._shards = [Shard(shard.spec, shard.weights, state) for shard, state in own]
        self._visible_shards = sorted(
            (shard for of_rank in by_rank for shard in of_rank), key=lambda shard: shard.spec.sort_key
        )
        self._features = sorted({shard.spec.feature for shard in self._visible_shards})
        self._dim = plan.embedding_dim
        self._batch_buffers: list[SharedBatchBuffer] | None = None

    def list_shards(self) -> list[Shard]:
        return self._shards

    def start_input_dist(self, ids: JaggedIds[torch.Tensor]) -> ReadyIds:
        """Return the ids as they are: every rank reads all tables. Rows that lie in files are read meanwhile."""
        return ReadyIds(ids, None if self._mapped is None else self._mapped.read_ahead(ids))

    def lookup(self, handle: ReadyIds, learning_rate: float) -> "_PooledShare":  # noqa: ARG002
        """Prepare to read chunks; see `Transport.lookup`. Collective where gradients are wanted."""
        handle.wait()
        ids = handle.ids
        num_samples = ids.lengths.shape[1]
        if not torch.is_grad_enabled():
            return _PooledShare(self._visible_shards, ids.values, compute_offsets(ids.lengths), num_samples)
        buffers = self._get_batch_buffers(ids)
        own = buffers[self._ranks.rank]
        own.write_ids(ids)
        update = _FusedUpdate(self._features, self._shards, buffers, self._optimizer, self._ranks)
        return _PooledShare(self._visible_shards, own.view_ids(), own.offsets, num_samples, update)

    def _get_batch_buffers(self, ids: JaggedIds[torch.Tensor]) -> list[SharedBatchBuffer]:
        """Return one buffer of every rank; create new ones where the size of the share has changed."""
        num_features, num_samples = ids.lengths.shape
        if self._batch_buffers is None or self._batch_buffers[0].num_samples != num_samples:
            self._batch_buffers = None
            shape = (len(self._features), num_samples, self._dim)
            own_bytes = SharedBatchBuffer.count_bytes(num_features, shape, self._gradient_dtype) + ids.values.nbytes
            buffers = share_buffers(self._ranks.table_group, lambda: SharedBuffer.create(own_bytes))
            self._batch_buffers = [
                SharedBatchBuffer(buffer, num_features, shape, self._gradient_dtype) for buffer in buffers
            ]
        return self._batch_buffers


class _PooledShare:
    """Pools embeddings of one rank's share when a chunk is read."""

    def __init__(
        self,
        shards: list[_VisibleShard],
        ids: torch.Tensor,
        offsets: torch.Tensor,
        num_samples: int,
        update: "_FusedUpdate | None" = None,
    ) -> None:
        """Keep what `read_chunk` needs. update: takes the gradients; None if no update is to come."""
        self._shards, self._ids, self._offsets, self._num_samples = shards, ids, offsets, num_samples
        self._update = update

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        for shard in self._shards:
            spec = shard.spec
            first = spec.feature * self._num_samples
            # Shards of the same columns come in the order of their rows: the first one writes, the others add.
            native_ops.pool(
                shard.weights,
                self._ids,
                self._offsets[first + start : first + end + 1],
                spec.block.first_row,
                out[:, spec.feature, spec.columns],
                accumulate=spec.block.first_row > 0,
            )

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        assert self._update is not None, "the lookup was made for an update"
        self._update.write_gradient(start, end, gradient)

    def discard(self) -> None:
        pass

    def apply_update(self, params: FusedUpdateParams) -> None:
        assert self._update is not None, "the lookup was made for an update"
        self._update.apply(params)


class _FusedUpdate:
    """The update of one rank's shards from the batch buffers of all ranks."""

    def __init__(
        self,
        features: list[int],
        shards: list[Shard],
        buffers: list[SharedBatchBuffer],
        optimizer: TableOptimizer,
        ranks: Ranks,
    ) -> None:
        """Keep what the update needs. features: features whose gradients the buffers hold, in this order."""
        self._features, self._shards, self._buffers = features, shards, buffers
        self._optimizer, self._ranks = optimizer, ranks

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        """Copy the gradient [c, F, D] of samples [start, end) into this rank's buffer, feature first."""
        if len(self._features) < gradient.shape[1]:
            gradient = gradient[:, self._features]
        self._buffers[self._ranks.rank].gradients[:, start:end].copy_(gradient.transpose(0, 1))

    def apply(self, params: FusedUpdateParams) -> None:
        """Update this rank's shards, and wait for all other ranks to have updated theirs. Collective."""
        ids = [buffer.view_ids() for buffer in self._buffers]
        for shard in self._shards:
            spec = shard.spec
            # The buffers hold gradients of the sharded features only: replicated tables have a transport of their own.
            row = self._features.index(spec.feature)
            native_ops.apply_update(
                shard,
                spec.block.first_row,
                ids,
                [buffer.view_offsets(spec.feature) for buffer in self._buffers],
                [buffer.gradients[row, :, spec.columns] for buffer in self._buffers],
                self._optimizer,
                params,
            )
        # No rank looks rows up for the next batch before all shards are updated.
        dist.barrier(self._ranks.table_group)


def _view_shards(specs: list[ShardSpec], buffer: SharedBuffer) -> list[_VisibleShard]:
    """View one rank's shards, which follow each other in its buffer."""
    shards: list[_VisibleShard] = []
    first_byte = 0
    for spec in specs:
        shards.append(_VisibleShard(spec, buffer.view_tensor(spec.dtype, spec.stored_shape, first_byte)))
        first_byte += _count_weight_bytes(spec)
    return shards


def _count_weight_bytes(spec: ShardSpec) -> int:
    """Count the bytes that the weights of a shard take in its rank's buffer."""
    return round_up_to_cache_line(spec.block.count_weight_bytes(spec.table.dtype))


def _count_offset_bytes(num_offsets: int) -> int:
    return round_up_to_cache_line(num_offsets * INDEX.itemsize)
