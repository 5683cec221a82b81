"""Tables of ranks that exchange: ids go to the owners of rows, pooled embeddings come back, and then their gradients.

Slice by slice, so that no rank holds the pooled embeddings of its whole share, and the exchange of one slice flies
while another one trains. The ids of the next batch travel ahead, over a process group of their own.

Collectives of the tables' group are issued by one thread in a fixed order: the pooled embeddings of slices 0 and 1, and
then, as each slice n has its gradients, these and the pooled embeddings of slice n + 2. It does not depend on chunks.
"""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.embedding.background_thread import Background
from sharding.embedding.input_dist import InputDistOutput, all_to_all_ids
from sharding.embedding.jagged import JaggedIds
from sharding.embedding.lookup import EmbeddingLookup, LookupBatch
from sharding.embedding.shard import ShardSpec, column_ranges, shard_specs_on
from sharding.embedding.slices import Slices
from sharding.embedding.transport import FusedUpdateParams
from sharding.planner import Plan
from sharding.planner.slice_size import SLICES_IN_FLIGHT


@dataclass(frozen=True)
class NetworkInputDist:
    """Ids on their way."""

    num_samples: int
    arrived: Future[InputDistOutput]

    def wait(self) -> None:
        """Until they have arrived, or cannot."""
        self.arrived.exception()


class NetworkTransport:
    """The tables that are split, over ranks that exchange."""

    def __init__(self, plan: Plan, owner: EmbeddingLookup, ranks: Ranks, dtype: torch.dtype, chunk_size: int) -> None:
        """dtype: of pooled embeddings and gradients between ranks. chunk_size: c at most."""
        self.shards = owner.shards
        self._embedding_lookup, self._ranks, self._dtype, self._chunk_size = owner, ranks, dtype, chunk_size
        self._shard_specs = [shard_specs_on(plan, rank, replicated=False) for rank in range(ranks.world_size)]
        self._layout = _OutputLayout.of(self._shard_specs)
        self._background = Background("ids of the next batch")
        self._stream = torch.cuda.Stream(ranks.device) if ranks.device.type == "cuda" else None

    def start_input_dist(self, bags: JaggedIds) -> NetworkInputDist:
        """Over gloo it goes on behind the caller, in the order of the calls."""
        if self._stream is None:
            arrived = self._background.submit(lambda: all_to_all_ids(bags, self._shard_specs, self._ranks.ids_group))
        else:
            arrived = self._exchange_on_stream(self._stream, bags)
        return NetworkInputDist(bags.num_samples, arrived)

    def lookup(self, sent: NetworkInputDist, terms: FusedUpdateParams) -> "_PooledShare":
        """Collective."""
        sample_bytes = self._layout.num_columns * self._dtype.itemsize
        slices = Slices.of(sent.num_samples, sample_bytes, self._chunk_size)
        arrived = sent.arrived.result()
        if self._stream is not None:
            current = torch.cuda.current_stream(self._ranks.device)
            current.wait_stream(self._stream)
            for tensor in (*arrived.ids, *arrived.offsets):
                tensor.record_stream(current)
        owned = self._embedding_lookup.batch(arrived, slices, terms)
        return _PooledShare(owned, self._layout, slices, self._ranks, self._dtype)

    def _exchange_on_stream(self, stream: torch.cuda.Stream, bags: JaggedIds) -> Future[InputDistOutput]:
        """By the caller: NCCL wants the collectives of all groups of a GPU in one order on all ranks, and so from one
        thread. The host waits; what it has queued before goes on."""
        # Ids are copied to the GPU by what the caller has queued.
        stream.wait_stream(torch.cuda.current_stream(self._ranks.device))
        arrived: Future[InputDistOutput] = Future()
        with torch.cuda.stream(stream):
            arrived.set_result(all_to_all_ids(bags, self._shard_specs, self._ranks.ids_group))
        return arrived


@dataclass(frozen=True)
class _ShardColumns:
    """Of what arrives of a sample."""

    spec: ShardSpec
    rank: int
    columns: slice
    """Of those that come from its rank."""


@dataclass(frozen=True)
class _OutputLayout:
    """What arrives of a sample: by rank, the columns of its shards side by side."""

    pieces: list[_ShardColumns]
    """First rows first, where some share columns: the others are added to them."""
    widths: list[int]
    """Columns of each rank."""

    @property
    def num_columns(self) -> int:
        return sum(self.widths)

    @classmethod
    def of(cls, places: list[list[ShardSpec]]) -> "_OutputLayout":
        pieces: list[_ShardColumns] = []
        widths: list[int] = []
        for rank, of_rank in enumerate(places):
            width, columns = column_ranges(of_rank)
            pieces += [_ShardColumns(place, rank, own) for place, own in zip(of_rank, columns, strict=True)]
            widths.append(width)
        return cls(sorted(pieces, key=lambda piece: piece.spec.order), widths)

    def parts(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """flat [m * columns], rank by rank -> of each rank [m, its columns], not copied."""
        size = len(flat) // max(1, self.num_columns)
        sizes = [size * width for width in self.widths]
        return [part.view(size, width) for part, width in zip(flat.split(sizes), self.widths, strict=True)]


@dataclass
class _AllToAll:
    """Numbers that are on their way, and what they are taken from."""

    received: torch.Tensor
    sent: torch.Tensor | None
    work: dist.Work | None

    def wait(self) -> torch.Tensor:
        """What has arrived, when it has."""
        if self.work is not None:
            self.work.wait()
            self.work = self.sent = None
        return self.received


class _PooledShare:
    """The pooled embeddings of one share, slice by slice, and their gradients on the way back."""

    def __init__(
        self, owned: LookupBatch, layout: _OutputLayout, slices: Slices, ranks: Ranks, dtype: torch.dtype
    ) -> None:
        self._batch, self._layout, self._slices, self._ranks, self._dtype = owned, layout, slices, ranks, dtype
        self._is_training = torch.is_grad_enabled()
        self._pooled: dict[int, _AllToAll] = {}
        self._gradients_in_flight: deque[_AllToAll] = deque()
        """Gradients, from the oldest on: as few as fly, since each holds a slice."""
        self._gradients: dict[int, torch.Tensor] = {}
        self._num_read = 0
        for number in range(min(SLICES_IN_FLIGHT, len(slices))):
            self._start_output_dist(number)

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        assert start == self._num_read, "chunks come in the order of the samples"
        self._num_read = end
        for number, of_slice, of_chunk in self._overlaps(start, end):
            if not self._is_training and number - 1 in self._pooled:
                # There is no gradient to wait for.
                del self._pooled[number - 1]
                self._start_output_dist(number - 1 + SLICES_IN_FLIGHT)
            parts = self._layout.parts(self._pooled[number].wait())
            for piece in self._layout.pieces:
                target = out[of_chunk, piece.spec.feature, piece.spec.columns]
                source = parts[piece.rank][of_slice, piece.columns]
                if piece.spec.block.first_row == 0:
                    target.copy_(source)
                else:
                    target.add_(source)

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        for number, of_slice, of_chunk in self._overlaps(start, end):
            parts = self._layout.parts(self._gradient_of(number))
            for piece in self._layout.pieces:
                of_piece = gradient[of_chunk, piece.spec.feature, piece.spec.columns]
                parts[piece.rank][of_slice, piece.columns] = of_piece
            if end >= self._slices.bounds(number)[1]:
                self._start_gradient_dist(number)

    def apply_update(self) -> None:
        """Not collective: owners have all that they need."""
        self.discard()
        self._batch.update()

    def discard(self) -> None:
        while self._gradients_in_flight:
            self._gradients_in_flight.popleft().wait()

    def _overlaps(self, start: int, end: int) -> list[tuple[int, slice, slice]]:
        """Slices that have some of these samples, which of its own those are, and which of the chunk's."""
        found: list[tuple[int, slice, slice]] = []
        for number in range(self._slices.number_of(start), self._slices.number_of(end - 1) + 1):
            first, behind = self._slices.bounds(number)
            low, high = max(start, first), min(end, behind)
            found.append((number, slice(low - first, high - first), slice(low - start, high - start)))
        return found

    def _start_output_dist(self, number: int) -> None:
        """Pooled embeddings of a slice, from all owners."""
        if number >= len(self._slices):
            return
        start, end = self._slices.bounds(number)
        leaving = self._batch.pooled(number).view(-1)
        arriving = leaving.new_empty((end - start) * self._layout.num_columns)
        self._pooled[number] = self._start_all_to_all(arriving, leaving, end - start, is_return=False)

    def _gradient_of(self, number: int) -> torch.Tensor:
        """Where the gradient of a slice is gathered, in the layout of what arrived."""
        if number not in self._gradients:
            self._gradients[number] = torch.empty_like(self._pooled[number].received)
        return self._gradients[number]

    def _start_gradient_dist(self, number: int) -> None:
        """The gradient of a slice to all owners, and the next slice's pooled embeddings from them."""
        start, end = self._slices.bounds(number)
        del self._pooled[number]
        arriving = self._batch.gradient(number).view(-1)
        self._gradients_in_flight.append(
            self._start_all_to_all(arriving, self._gradients.pop(number), end - start, is_return=True)
        )
        self._start_output_dist(number + SLICES_IN_FLIGHT)
        if len(self._gradients_in_flight) >= SLICES_IN_FLIGHT:
            self._gradients_in_flight.popleft().wait()

    def _start_all_to_all(
        self, arriving: torch.Tensor, leaving: torch.Tensor, size: int, *, is_return: bool
    ) -> _AllToAll:
        """size: m, samples of the slice on every rank."""
        widths, rank = self._layout.widths, self._ranks.rank
        of_all = [size * width for width in widths]
        of_own = [size * widths[rank]] * len(widths)
        if len(widths) == 1:
            arriving.copy_(leaving)
            return _AllToAll(arriving, leaving, None)
        incoming, outgoing = (of_own, of_all) if is_return else (of_all, of_own)
        work = dist.all_to_all_single(
            arriving, leaving, incoming, outgoing, group=self._ranks.table_group, async_op=True
        )
        assert work is not None, "an asynchronous collective returns its work"
        return _AllToAll(arriving, leaving, work)
