"""Tables of ranks that share one machine's memory: nothing is exchanged.

Each rank looks rows up in every rank's shards, a chunk at a time, and writes the gradients of what it pooled where the
others can read them. Once all have agreed on the step, every rank updates its own shards from the ids and gradients of
all: tables do not change while anybody reads them, and a batch has one update.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.comm.shared_memory import SharedBuffer, shared_by_all, whole_lines
from sharding.embedding import native_ops as native
from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.jagged import Bags
from sharding.embedding.shard import Place, Shard, make_shard, places_on
from sharding.embedding.shared_batch_buffer import Desk
from sharding.embedding.transport import Terms
from sharding.planner import Plan


@dataclass(frozen=True)
class _Piece:
    """A piece of a table, of any rank, as this one sees it."""

    place: Place
    weights: torch.Tensor
    """[R, C]"""


class MemoryTransport:
    """The tables that are split, over the ranks of one machine."""

    def __init__(self, plan: Plan, optimizer: TableOptimizer, ranks: Ranks, gradient_dtype: torch.dtype) -> None:
        """Collective. gradient_dtype: that gradients are kept in until the update."""
        self._optimizer = optimizer
        self._ranks = ranks
        self._gradient_dtype = gradient_dtype
        places = [places_on(plan, rank, replicated=False) for rank in range(ranks.world_size)]
        num_bytes = sum(whole_lines(place.block.weight_bytes) for place in places[ranks.rank])
        buffers = shared_by_all(ranks.table_group, num_bytes)
        by_rank = [_pieces(of_rank, buffer) for of_rank, buffer in zip(places, buffers, strict=True)]
        self.shards = [make_shard(piece.place, optimizer, piece.weights) for piece in by_rank[ranks.rank]]
        self._pieces = sorted((piece for pieces in by_rank for piece in pieces), key=lambda piece: piece.place.order)
        self._features = sorted({piece.place.feature for piece in self._pieces})
        self._dim = plan.tables[0].table.embedding_dim
        self._desks: list[Desk] | None = None

    def send(self, bags: Bags) -> Bags:
        """Nothing travels."""
        return bags

    def lookup(self, sent: Bags, terms: Terms) -> "_Share":
        """Collective where gradients are wanted."""
        if not torch.is_grad_enabled():
            return _Share(self._pieces, sent.ids, sent.offsets(), sent.num_samples)
        desks = self._desks_of(sent)
        own = desks[self._ranks.rank]
        own.put(sent)
        update = _Update(self._features, self.shards, desks, self._optimizer, terms, self._ranks)
        return _Share(self._pieces, own.ids(), own.offsets, sent.num_samples, update)

    def _desks_of(self, sent: Bags) -> list[Desk]:
        """One of every rank, made for shares of this size."""
        if self._desks is None or self._desks[0].num_samples != sent.num_samples:
            self._desks = None
            shape = (len(self._features), sent.num_samples, self._dim)
            own_bytes = Desk.num_bytes(sent.num_features, shape, self._gradient_dtype) + sent.ids.nbytes
            buffers = shared_by_all(self._ranks.table_group, own_bytes)
            self._desks = [Desk(buffer, sent.num_features, shape, self._gradient_dtype) for buffer in buffers]
        return self._desks


class _Share:
    """Pooled embeddings of one rank's share, made as they are asked for."""

    def __init__(
        self,
        pieces: list[_Piece],
        ids: torch.Tensor,
        offsets: torch.Tensor,
        num_samples: int,
        update: "_Update | None" = None,
    ) -> None:
        """update: that its gradients are for; None where there is none to come."""
        self._pieces, self._ids, self._offsets, self._num_samples = pieces, ids, offsets, num_samples
        self._update = update

    def fill(self, start: int, end: int, out: torch.Tensor) -> None:
        for piece in self._pieces:
            place = piece.place
            first = place.feature * self._num_samples
            native.pool(
                piece.weights,
                self._ids,
                self._offsets[first + start : first + end + 1],
                place.block.first_row,
                out[:, place.feature, place.columns],
                accumulate=place.block.first_row > 0,
            )

    def take(self, start: int, end: int, gradient: torch.Tensor) -> None:
        assert self._update is not None, "gradients were wanted when it was looked up"
        self._update.take(start, end, gradient)

    def drop(self) -> None:
        pass

    def update(self) -> None:
        """Collective."""
        assert self._update is not None, "gradients were wanted when it was looked up"
        self._update()


class _Update:
    """Of the shards of one rank, from the desks of all."""

    def __init__(
        self,
        features: list[int],
        shards: list[Shard],
        desks: list[Desk],
        optimizer: TableOptimizer,
        terms: Terms,
        ranks: Ranks,
    ) -> None:
        """features: that the gradients on the desks are of, in their order."""
        self._features, self._shards, self._desks = features, shards, desks
        self._optimizer, self._terms, self._ranks = optimizer, terms, ranks

    def take(self, start: int, end: int, gradient: torch.Tensor) -> None:
        if len(self._features) < gradient.shape[1]:
            gradient = gradient[:, self._features]
        self._desks[self._ranks.rank].gradients[:, start:end].copy_(gradient.transpose(0, 1))

    def __call__(self) -> None:
        ids = [desk.ids() for desk in self._desks]
        for shard in self._shards:
            place = shard.place
            row = self._features.index(place.feature)
            native.update(
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


def _pieces(places: list[Place], buffer: SharedBuffer) -> list[_Piece]:
    """Of one rank, one behind the other in its buffer."""
    pieces: list[_Piece] = []
    first_byte = 0
    for place in places:
        pieces.append(_Piece(place, buffer.tensor(torch.float32, place.shape, first_byte)))
        first_byte += whole_lines(place.block.weight_bytes)
    return pieces
