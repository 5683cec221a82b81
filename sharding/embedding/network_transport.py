"""Tables of ranks that exchange by all-to-all: ids go to the owners of rows, pooled embeddings come back.

The exchange goes slice by slice, so that no rank holds the pooled embeddings of its whole share, and one slice travels
while another one trains. The ids of the next batch travel ahead, over a process group of their own.

All ranks must issue the collectives of the table group in one order. One thread issues them: the output dists of slices
0 and 1, and then, as each slice n has its gradient, the gradient dist of n and the output dist of n + 2. That order
does not depend on the size of chunks.
"""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.embedding.background_thread import BackgroundThread
from sharding.embedding.input_dist import InputDistOutput, all_to_all_ids
from sharding.embedding.lookup import EmbeddingLookup, LookupBatch
from sharding.embedding.shard import ShardSpec, column_ranges, shard_specs_on
from sharding.embedding.slices import Slices
from sharding.embedding.transport import FusedUpdateParams
from sharding.jagged import JaggedIds
from sharding.planner import Plan
from sharding.planner.slice_size import SLICES_IN_FLIGHT


@dataclass(frozen=True)
class NetworkInputDist:
    """An input dist in flight."""

    num_samples: int
    output: Future[InputDistOutput]

    def wait(self) -> None:
        """Wait until the ids have arrived, or have failed to."""
        self.output.exception()


class NetworkTransport:
    """The sharded tables of ranks that exchange by all-to-all."""

    def __init__(self, plan: Plan, lookup: EmbeddingLookup, ranks: Ranks, dtype: torch.dtype, chunk_size: int) -> None:
        """Keep what the exchange needs. dtype: of pooled embeddings and gradients in transit. chunk_size: c at most."""
        self.shards = lookup.shards
        self._lookup, self._ranks, self._dtype, self._chunk_size = lookup, ranks, dtype, chunk_size
        self._specs = [shard_specs_on(plan, rank, replicated=False) for rank in range(ranks.world_size)]
        self._layout = _OutputLayout.of(self._specs)
        self._id_thread = BackgroundThread("ids of the next batch")
        self._stream = torch.cuda.Stream(ranks.device) if ranks.device.type == "cuda" else None

    def start_input_dist(self, ids: JaggedIds[torch.Tensor]) -> NetworkInputDist:
        """Start to send ids; over gloo a thread of its own does it, in the order of the calls. Collective."""
        if self._stream is None:
            output = self._id_thread.submit(lambda: all_to_all_ids(ids, self._specs, self._ranks.ids_group))
        else:
            output = self._exchange_on_stream(self._stream, ids)
        return NetworkInputDist(ids.lengths.shape[1], output)

    def lookup(self, handle: NetworkInputDist, learning_rate: float) -> "_PooledShare":
        """Look up rows for all ranks, and start the first output dists; see `Transport.lookup`. Collective."""
        sample_bytes = self._layout.num_columns * self._dtype.itemsize
        slices = Slices.of(handle.num_samples, sample_bytes, self._chunk_size)
        ids = handle.output.result()
        if self._stream is not None:
            current = torch.cuda.current_stream(self._ranks.device)
            current.wait_stream(self._stream)
            for tensor in (*ids.ids, *ids.offsets):
                tensor.record_stream(current)
        batch = self._lookup.start_batch(ids, slices, learning_rate)
        return _PooledShare(batch, self._layout, slices, self._ranks, self._dtype)

    def _exchange_on_stream(self, stream: torch.cuda.Stream, ids: JaggedIds[torch.Tensor]) -> Future[InputDistOutput]:
        """Exchange ids in the calling thread, on a stream of their own.

        NCCL wants the collectives of all groups of a GPU in one order on all ranks, and so from one thread. The host
        waits; kernels that were queued before go on.
        """
        # Kernels that were queued before copy the ids to the GPU.
        stream.wait_stream(torch.cuda.current_stream(self._ranks.device))
        output: Future[InputDistOutput] = Future()
        with torch.cuda.stream(stream):
            output.set_result(all_to_all_ids(ids, self._specs, self._ranks.ids_group))
        return output


@dataclass(frozen=True)
class _ShardColumns:
    """Columns of one shard in what its rank sends of a sample."""

    spec: ShardSpec
    rank: int
    columns: slice


@dataclass(frozen=True)
class _OutputLayout:
    """Layout of the columns that arrive of a sample: rank by rank, those of its shards side by side."""

    shards: list[_ShardColumns]
    """Shards of all ranks. Of those with the same columns the one of the first rows comes first: the others are added
    to it."""
    widths: list[int]
    """Number of columns of each rank."""

    @property
    def num_columns(self) -> int:
        """Columns of all ranks together."""
        return sum(self.widths)

    @classmethod
    def of(cls, specs: list[list[ShardSpec]]) -> "_OutputLayout":
        """Lay out the shards of every rank."""
        shards: list[_ShardColumns] = []
        widths: list[int] = []
        for rank, of_rank in enumerate(specs):
            width, columns = column_ranges(of_rank)
            shards += [_ShardColumns(spec, rank, own) for spec, own in zip(of_rank, columns, strict=True)]
            widths.append(width)
        return cls(sorted(shards, key=lambda shard: shard.spec.sort_key), widths)

    def by_rank(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """View `flat` [m * columns], which holds rank after rank, as one tensor [m, its columns] a rank."""
        size = len(flat) // max(1, self.num_columns)
        sizes = [size * width for width in self.widths]
        return [part.view(size, width) for part, width in zip(flat.split(sizes), self.widths, strict=True)]


@dataclass
class _AllToAll:
    """An all-to-all in flight."""

    received: torch.Tensor
    sent: torch.Tensor | None
    """Kept alive until the work is done."""
    work: dist.Work | None

    def wait(self) -> torch.Tensor:
        """Wait for what is received, and return it."""
        if self.work is not None:
            self.work.wait()
            self.work = self.sent = None
        return self.received


class _PooledShare:
    """The pooled embeddings of one share as they arrive, slice by slice, and their gradients on the way back."""

    def __init__(
        self, batch: LookupBatch, layout: _OutputLayout, slices: Slices, ranks: Ranks, dtype: torch.dtype
    ) -> None:
        """Start the output dists of the first slices. Collective."""
        self._batch, self._layout, self._slices, self._ranks, self._dtype = batch, layout, slices, ranks, dtype
        self._is_training = torch.is_grad_enabled()
        self._pooled: dict[int, _AllToAll] = {}
        """Output dists by slice, in flight or arrived and still needed."""
        self._gradient_dists: deque[_AllToAll] = deque()
        """FIFO of gradient dists in flight: at most SLICES_IN_FLIGHT, since each pins a slice buffer."""
        self._gradients: dict[int, torch.Tensor] = {}
        """Gradients by slice that are not complete yet, in the layout of what arrived."""
        self._num_read = 0
        for number in range(min(SLICES_IN_FLIGHT, len(slices))):
            self._start_output_dist(number)

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        assert start == self._num_read, "chunks come in the order of the samples"
        self._num_read = end
        for number, in_slice, in_chunk in self._overlaps(start, end):
            if not self._is_training and number - 1 in self._pooled:
                # Without gradients to wait for, a slice is done with when the next one is read.
                del self._pooled[number - 1]
                self._start_output_dist(number - 1 + SLICES_IN_FLIGHT)
            by_rank = self._layout.by_rank(self._pooled[number].wait())
            for shard in self._layout.shards:
                target = out[in_chunk, shard.spec.feature, shard.spec.columns]
                source = by_rank[shard.rank][in_slice, shard.columns]
                if shard.spec.block.first_row == 0:
                    target.copy_(source)
                else:
                    target.add_(source)

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        for number, in_slice, in_chunk in self._overlaps(start, end):
            by_rank = self._layout.by_rank(self._gradient_of(number))
            for shard in self._layout.shards:
                of_shard = gradient[in_chunk, shard.spec.feature, shard.spec.columns]
                by_rank[shard.rank][in_slice, shard.columns] = of_shard
            if end >= self._slices.bounds(number)[1]:
                self._start_gradient_dist(number)

    def apply_update(self, params: FusedUpdateParams) -> None:
        """Wait for the gradients of all ranks, and update this rank's shards. Not collective."""
        self.discard()
        self._batch.apply_update(params)

    def discard(self) -> None:
        while self._gradient_dists:
            self._gradient_dists.popleft().wait()

    def _overlaps(self, start: int, end: int) -> list[tuple[int, slice, slice]]:
        """List the slices that hold samples [start, end): the slice, which of its samples, which of the chunk's."""
        found: list[tuple[int, slice, slice]] = []
        for number in range(self._slices.number_of(start), self._slices.number_of(end - 1) + 1):
            slice_start, slice_end = self._slices.bounds(number)
            low, high = max(start, slice_start), min(end, slice_end)
            in_slice = slice(low - slice_start, high - slice_start)
            found.append((number, in_slice, slice(low - start, high - start)))
        return found

    def _start_output_dist(self, number: int) -> None:
        """Pool slice `number` for all ranks, and start to receive its pooled embeddings from all owners."""
        if number >= len(self._slices):
            return
        start, end = self._slices.bounds(number)
        to_send = self._batch.pooled_slice(number).view(-1)
        received = to_send.new_empty((end - start) * self._layout.num_columns)
        self._pooled[number] = self._start_all_to_all(received, to_send, end - start, is_gradient=False)

    def _gradient_of(self, number: int) -> torch.Tensor:
        """Return the buffer that collects the gradient of slice `number`."""
        if number not in self._gradients:
            self._gradients[number] = torch.empty_like(self._pooled[number].received)
        return self._gradients[number]

    def _start_gradient_dist(self, number: int) -> None:
        """Start to send the gradient of a slice to all owners, then the output dist of the next slice but one."""
        start, end = self._slices.bounds(number)
        del self._pooled[number]
        received = self._batch.gradient_slice(number).view(-1)
        to_send = self._gradients.pop(number)
        self._gradient_dists.append(self._start_all_to_all(received, to_send, end - start, is_gradient=True))
        self._start_output_dist(number + SLICES_IN_FLIGHT)
        if len(self._gradient_dists) >= SLICES_IN_FLIGHT:
            self._gradient_dists.popleft().wait()

    def _start_all_to_all(
        self, received: torch.Tensor, to_send: torch.Tensor, num_samples: int, *, is_gradient: bool
    ) -> _AllToAll:
        """Start an all-to-all of pooled embeddings or of gradients. num_samples: m, of the slice on every rank."""
        widths, rank = self._layout.widths, self._ranks.rank
        from_owners = [num_samples * width for width in widths]
        from_samples = [num_samples * widths[rank]] * len(widths)
        if len(widths) == 1:
            received.copy_(to_send)
            return _AllToAll(received, to_send, None)
        receive_sizes, send_sizes = (from_samples, from_owners) if is_gradient else (from_owners, from_samples)
        work = dist.all_to_all_single(
            received, to_send, receive_sizes, send_sizes, group=self._ranks.table_group, async_op=True
        )
        assert work is not None, "an asynchronous collective returns its work"
        return _AllToAll(received, to_send, work)
