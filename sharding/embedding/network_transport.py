"""Tables of ranks on CPUs that exchange by all-to-all: ids go to the owners of rows, pooled embeddings come back.

The exchange goes slice by slice, so that no rank holds the pooled embeddings of its whole share, and one slice travels
while another one trains. The ids of the next batch travel ahead, over a process group of their own.

All ranks must issue the collectives of the table group in one order. One thread issues them: the output dists of slices
0 and 1, and then, once slice n has its whole gradient, the gradient dist of n and the output dist of n + 2. That order
does not depend on the size of chunks.

Sizes of one all-to-all, for a slice of m samples on every rank, with C_r the columns of all shards of rank r and
C = sum of C_r: in an output dist rank r sends m C_r numbers to every rank, the pooled embeddings of that rank's samples
in its shards, and receives m C_s from every rank s, m C in all. A gradient dist is the same in reverse.
"""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.comm.exchange_clock import Waitable
from sharding.comm.process_groups import Ranks
from sharding.embedding.background_thread import BackgroundThread
from sharding.embedding.fused_optimizer import FusedUpdateParams, TableOptimizer
from sharding.embedding.input_dist import InputDistOutput, all_to_all_ids
from sharding.embedding.lookup import LookupBatch
from sharding.embedding.shard import Shard, ShardSpec, lay_out_columns, list_shard_specs, make_shard
from sharding.embedding.slices import Slices
from sharding.jagged import JaggedIds
from sharding.planner import Plan
from sharding.planner.slice_size import SLICES_IN_FLIGHT


@dataclass(frozen=True)
class NetworkInputDist:
    """An input dist in flight."""

    num_samples: int
    output: Future[InputDistOutput]

    def wait(self) -> None:
        """Wait until the ids have arrived, or their exchange has failed."""
        self.output.exception()


class NetworkTransport:
    """The sharded tables of ranks that exchange by all-to-all."""

    def __init__(
        self,
        plan: Plan,
        optimizer: TableOptimizer,
        ranks: Ranks,
        dtype: torch.dtype,
        chunk_size: int,
        id_thread: BackgroundThread,
    ) -> None:
        """Allocate this rank's shards. dtype: of pooled embeddings and gradients in transit. chunk_size: c at most.

        id_thread: sends the ids; the same one for all that use the process group of ids.
        """
        self._optimizer, self._ranks, self._dtype, self._chunk_size = optimizer, ranks, dtype, chunk_size
        self._specs = [list_shard_specs(plan, rank, replicated=False) for rank in range(ranks.world_size)]
        self._shards = [
            make_shard(spec, optimizer, torch.empty(spec.stored_shape, dtype=spec.dtype))
            for spec in self._specs[ranks.rank]
        ]
        self._layout = _OutputLayout.from_specs(self._specs)
        self._id_thread = id_thread

    def list_shards(self) -> list[Shard]:
        return self._shards

    def start_input_dist(self, ids: JaggedIds[torch.Tensor]) -> NetworkInputDist:
        """Start to send ids; a separate thread does it, in the order of the calls. Collective."""
        output = self._id_thread.submit(lambda: all_to_all_ids(ids, self._specs, self._ranks))
        return NetworkInputDist(ids.lengths.shape[1], output)

    def lookup(self, handle: NetworkInputDist, learning_rate: float) -> "_PooledShare":  # noqa: ARG002
        """Look up rows for all ranks, and start the first output dists; see `Transport.lookup`. Collective."""
        sample_bytes = self._layout.num_columns * self._dtype.itemsize
        slices = Slices.cut(handle.num_samples, sample_bytes, self._chunk_size)
        with self._ranks.exchange_clock.count_wait("ids"):
            output = handle.output.result()
        batch = LookupBatch(self._shards, self._optimizer, self._dtype, output, slices)
        return _PooledShare(batch, self._layout, slices, self._ranks, self._dtype)


@dataclass(frozen=True)
class _ShardColumns:
    """Columns of one shard within the C_r columns that its rank sends for a sample."""

    spec: ShardSpec
    rank: int
    columns: slice


@dataclass(frozen=True)
class _OutputLayout:
    """Layout of the C columns that arrive for a sample: rank by rank, the columns of its shards side by side."""

    shards: list[_ShardColumns]
    """Shards of all ranks. Among shards with the same columns of a table the one with the first rows comes first: it is
    copied, and the partial sums of the others are added to it."""
    widths: list[int]
    """Number of columns C_r of each rank."""

    @property
    def num_columns(self) -> int:
        """C, columns of all ranks together."""
        return sum(self.widths)

    @classmethod
    def from_specs(cls, specs: list[list[ShardSpec]]) -> "_OutputLayout":
        """Lay out the shards of every rank."""
        shards: list[_ShardColumns] = []
        widths: list[int] = []
        for rank, of_rank in enumerate(specs):
            width, columns = lay_out_columns(of_rank)
            shards += [_ShardColumns(spec, rank, own) for spec, own in zip(of_rank, columns, strict=True)]
            widths.append(width)
        return cls(sorted(shards, key=lambda shard: shard.spec.sort_key), widths)

    def split_by_rank(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """View `flat` [m C], as an all-to-all lays it out, as one tensor [m, C_r] for each rank r."""
        size = len(flat) // max(1, self.num_columns)
        sizes = [size * width for width in self.widths]
        return [part.view(size, width) for part, width in zip(flat.split(sizes), self.widths, strict=True)]


@dataclass
class _AllToAll:
    """An all-to-all in flight."""

    received: torch.Tensor
    sent: torch.Tensor | None
    """Tensor that is being sent, kept alive until the work is done."""
    work: Waitable | None

    def wait(self) -> torch.Tensor:
        """Wait until `received` is complete, and return it."""
        if self.work is not None:
            self.work.wait()
            self.work = self.sent = None
        return self.received


class _PooledShare:
    """The pooled embeddings of one share as they arrive, slice by slice, and the way back of their gradients."""

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
        """Gradients by slice that are not complete yet, [m C] in the layout of the pooled embeddings."""
        self._num_read = 0
        for number in range(min(SLICES_IN_FLIGHT, len(slices))):
            self._start_output_dist(number)

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        assert start == self._num_read, "chunks come in the order of the samples"
        self._num_read = end
        for number, in_slice, in_chunk in self._find_overlaps(start, end):
            if not self._is_training and number - 1 in self._pooled:
                # Without gradients to wait for, a slice is finished when the next one is read.
                del self._pooled[number - 1]
                self._start_output_dist(number - 1 + SLICES_IN_FLIGHT)
            by_rank = self._layout.split_by_rank(self._pooled[number].wait())
            for shard in self._layout.shards:
                target = out[in_chunk, shard.spec.feature, shard.spec.columns]
                source = by_rank[shard.rank][in_slice, shard.columns]
                # The owner of a range of rows pools only the ids of its rows; the sum over ranges is the whole pooling.
                if shard.spec.block.first_row == 0:
                    target.copy_(source)
                else:
                    target.add_(source)

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        for number, in_slice, in_chunk in self._find_overlaps(start, end):
            by_rank = self._layout.split_by_rank(self._get_gradient(number))
            for shard in self._layout.shards:
                # Every range of rows gets the whole gradient: the derivative of a sum is 1 for each of its terms.
                shard_gradient = gradient[in_chunk, shard.spec.feature, shard.spec.columns]
                by_rank[shard.rank][in_slice, shard.columns] = shard_gradient
            if end >= self._slices.get_bounds(number)[1]:
                self._start_gradient_dist(number)

    def apply_update(self, params: FusedUpdateParams) -> None:
        """Wait for the gradients of all ranks, and update this rank's shards. Not collective."""
        self._wait_for_gradients()
        self._batch.apply_update(params)

    def discard(self) -> None:
        # What is in flight must arrive, so that the next batch finds the process group idle.
        self._wait_for_gradients()

    def _wait_for_gradients(self) -> None:
        while self._gradient_dists:
            self._gradient_dists.popleft().wait()

    def _find_overlaps(self, start: int, end: int) -> list[tuple[int, slice, slice]]:
        """List the slices that hold samples [start, end): number, range within the slice, range within the chunk."""
        found: list[tuple[int, slice, slice]] = []
        for number in range(self._slices.find_slice(start), self._slices.find_slice(end - 1) + 1):
            slice_start, slice_end = self._slices.get_bounds(number)
            low, high = max(start, slice_start), min(end, slice_end)
            in_slice = slice(low - slice_start, high - slice_start)
            found.append((number, in_slice, slice(low - start, high - start)))
        return found

    def _start_output_dist(self, number: int) -> None:
        """Pool slice `number` for all ranks, and start to receive its pooled embeddings from all owners."""
        if number >= len(self._slices):
            return
        start, end = self._slices.get_bounds(number)
        to_send = self._batch.pool_slice(number).view(-1)
        received = to_send.new_empty((end - start) * self._layout.num_columns)
        self._pooled[number] = self._start_all_to_all(received, to_send, end - start, is_gradient=False)

    def _get_gradient(self, number: int) -> torch.Tensor:
        """Return the buffer [m C] that collects the gradient of slice `number`."""
        if number not in self._gradients:
            self._gradients[number] = torch.empty_like(self._pooled[number].received)
        return self._gradients[number]

    def _start_gradient_dist(self, number: int) -> None:
        """Start the gradient dist of slice `number`, then the output dist of slice `number + SLICES_IN_FLIGHT`."""
        start, end = self._slices.get_bounds(number)
        del self._pooled[number]
        received = self._batch.get_gradient_slice(number).view(-1)
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
        # m C_s numbers for each owner s, and m C_r of this rank r's own shards for the samples of each rank.
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
        kind, sent_bytes = "gradients" if is_gradient else "pooled embeddings", len(to_send) - send_sizes[rank]
        sent_bytes *= to_send.itemsize
        return _AllToAll(received, to_send, self._ranks.exchange_clock.track(kind, work, sent_bytes))
