"""Tables of ranks that share one machine's memory: nothing is exchanged.

Each rank looks rows up in every rank's shards, a chunk at a time, and writes the gradients of what it pooled where the
others can read them. Once all have agreed on the step, every rank updates its own shards from the ids and gradients of
all: tables do not change while anybody reads them, and a batch has one update.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.comm.shared_memory import SharedBuffer, round_up_to_cache_line, share_buffers
from sharding.embedding import native_ops as native
from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.jagged import JaggedIds
from sharding.embedding.shard import Shard, ShardSpec, make_shard, shard_specs_on
from sharding.embedding.shared_batch_buffer import SharedBatchBuffer
from sharding.embedding.transport import FusedUpdateParams
from sharding.planner import Plan


@dataclass(frozen=True)
class _VisibleShard:
    """A piece of a table, of any rank, as this one sees it."""

    spec: ShardSpec
    weights: torch.Tensor
    """[R, C]"""


class MemoryTransport:
    """The tables that are split, over the ranks of one machine."""

    def __init__(self, plan: Plan, optimizer: TableOptimizer, ranks: Ranks, gradient_dtype: torch.dtype) -> None:
        """Collective. gradient_dtype: that gradients are kept in until the update."""
        self._optimizer = optimizer
        self._ranks = ranks
        self._gradient_dtype = gradient_dtype
        places = [shard_specs_on(plan, rank, replicated=False) for rank in range(ranks.world_size)]
        num_bytes = sum(round_up_to_cache_line(place.block.weight_bytes) for place in places[ranks.rank])
        buffers = share_buffers(ranks.table_group, num_bytes)
        by_rank = [_visible_shards(of_rank, buffer) for of_rank, buffer in zip(places, buffers, strict=True)]
        self.shards = [make_shard(piece.spec, optimizer, piece.weights) for piece in by_rank[ranks.rank]]
        self._visible_shards = sorted(
            (piece for pieces in by_rank for piece in pieces), key=lambda piece: piece.spec.order
        )
        self._features = sorted({piece.spec.feature for piece in self._visible_shards})
        self._dim = plan.tables[0].table.embedding_dim
        self._batch_buffers: list[SharedBatchBuffer] | None = None

    def start_input_dist(self, bags: JaggedIds) -> JaggedIds:
        """Nothing travels."""
        return bags

    def lookup(self, sent: JaggedIds, terms: FusedUpdateParams) -> "_PooledShare":
        """Collective where gradients are wanted."""
        if not torch.is_grad_enabled():
            return _PooledShare(self._visible_shards, sent.ids, sent.offsets(), sent.num_samples)
        desks = self._batch_buffers_for(sent)
        own = desks[self._ranks.rank]
        own.write_ids(sent)
        update = _FusedUpdate(self._features, self.shards, desks, self._optimizer, terms, self._ranks)
        return _PooledShare(self._visible_shards, own.ids(), own.offsets, sent.num_samples, update)

    def _batch_buffers_for(self, sent: JaggedIds) -> list[SharedBatchBuffer]:
        """One of every rank, made for shares of this size."""
        if self._batch_buffers is None or self._batch_buffers[0].num_samples != sent.num_samples:
            self._batch_buffers = None
            shape = (len(self._features), sent.num_samples, self._dim)
            own_bytes = SharedBatchBuffer.num_bytes(sent.num_features, shape, self._gradient_dtype) + sent.ids.nbytes
            buffers = share_buffers(self._ranks.table_group, own_bytes)
            self._batch_buffers = [
                SharedBatchBuffer(buffer, sent.num_features, shape, self._gradient_dtype) for buffer in buffers
            ]
        return self._batch_buffers


class _PooledShare:
    """Pooled embeddings of one rank's share, made as they are asked for."""

    def __init__(
        self,
        pieces: list[_VisibleShard],
        ids: torch.Tensor,
        offsets: torch.Tensor,
        num_samples: int,
        apply_update: "_FusedUpdate | None" = None,
    ) -> None:
        """update: that its gradients are for; None where there is none to come."""
        self._pieces, self._ids, self._offsets, self._num_samples = pieces, ids, offsets, num_samples
        self._update = apply_update

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        for piece in self._pieces:
            place = piece.spec
            first = place.feature * self._num_samples
            native.pool(
                piece.weights,
                self._ids,
                self._offsets[first + start : first + end + 1],
                place.block.first_row,
                out[:, place.feature, place.columns],
                accumulate=place.block.first_row > 0,
            )

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        assert self._update is not None, "gradients were wanted when it was looked up"
        self._update.write_gradient(start, end, gradient)

    def discard(self) -> None:
        pass

    def update(self) -> None:
        """Collective."""
        assert self._update is not None, "gradients were wanted when it was looked up"
        self._update()


class _FusedUpdate:
    """Of the shards of one rank, from the desks of all."""

    def __init__(
        self,
        features: list[int],
        shards: list[Shard],
        desks: list[SharedBatchBuffer],
        optimizer: TableOptimizer,
        terms: FusedUpdateParams,
        ranks: Ranks,
    ) -> None:
        """features: that the gradients on the desks are of, in their order."""
        self._features, self._shards, self._desks = features, shards, desks
        self._optimizer, self._terms, self._ranks = optimizer, terms, ranks

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        if len(self._features) < gradient.shape[1]:
            gradient = gradient[:, self._features]
        self._desks[self._ranks.rank].gradients[:, start:end].copy_(gradient.transpose(0, 1))

    def __call__(self) -> None:
        ids = [desk.ids() for desk in self._desks]
        for shard in self._shards:
            place = shard.spec
            row = self._features.index(place.feature)
            native.apply_update(
                shard,
                place.block.first_row,
                ids,
                [desk.offsets_of(place.feature) for desk in self._desks],
                [desk.gradients[row, :, place.columns] for desk in self._desks],
                self._optimizer,
                self._terms,
            )
        # Before anybody reads them again.
        dist.barrier(self._ranks.table_group)


def _visible_shards(places: list[ShardSpec], buffer: SharedBuffer) -> list[_VisibleShard]:
    """Of one rank, one behind the other in its buffer."""
    pieces: list[_VisibleShard] = []
    first_byte = 0
    for place in places:
        pieces.append(_VisibleShard(place, buffer.tensor(torch.float32, place.shape, first_byte)))
        first_byte += round_up_to_cache_line(place.block.weight_bytes)
    return pieces
