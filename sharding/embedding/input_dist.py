"""The input dist: over the network each rank sends its ids to the ranks that own their rows."""

from concurrent.futures import Future
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.embedding.id_packets import (
    PacketLayout,
    ShardIds,
    choose_id_dtype,
    lay_out_packet,
    read_packet,
    write_packet,
)
from sharding.embedding.shard import ShardSpec
from sharding.jagged import JaggedIds


@dataclass(frozen=True)
class ReadyIds:
    """The input dist of transports that send no ids: they are already where they are looked up."""

    ids: JaggedIds[torch.Tensor]
    rows_read: Future[None] | None = None
    """Done once the rows of tables in files are on their way to memory; None if all tables are in memory."""

    def wait(self) -> None:
        """Wait until rows are on their way, if any lie in files."""
        if self.rows_read is not None:
            self.rows_read.result()


@dataclass(frozen=True)
class InputDistOutput:
    """The ids that this rank looks up: for each of its shards the bags of all ranks' samples."""

    ids: list[torch.Tensor]
    """Ids of every source rank: [n] int64, rows of this rank's shards, shard by shard, sample by sample."""
    offsets: list[torch.Tensor]
    """Offsets of bags in the ids of every source rank: [shards * b + 1] int64."""
    num_samples: int
    """b, the same on every rank."""

    def view_offsets(self, source: int, shard: int, start: int, end: int) -> torch.Tensor:
        """View the offsets [end - start + 1] of samples [start, end) of rank `source` in one shard."""
        first = shard * self.num_samples
        return self.offsets[source][first + start : first + end + 1]


def compute_offsets(lengths: torch.Tensor) -> torch.Tensor:
    """Sum up `lengths` of n bags, of any shape: [n + 1] int64, the start of each bag and the end of the last one."""
    offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths.flatten(), 0, out=offsets[1:])
    return offsets


def all_to_all_ids(ids: JaggedIds[torch.Tensor], specs: list[list[ShardSpec]], ranks: Ranks) -> InputDistOutput:
    """Send every rank the ids of its shards, and receive the ids of this rank's shards: two all-to-alls. Collective.

    The first one sends the sizes of packets, the second one the packets. They use the process group of ids; no other
    thread uses it at the same time. specs: shards of every rank.
    """
    own, num_samples = specs[ranks.rank], ids.lengths.shape[1]
    selector = ShardSelector(ids)
    to_send = [[selector.select(spec) for spec in of_rank] for of_rank in specs]
    layouts = [lay_out_packet(by_shard, of_rank) for by_shard, of_rank in zip(to_send, specs, strict=True)]
    received_layouts = _all_to_all_layouts(layouts, choose_id_dtype(own), len(own) * num_samples, ranks)
    send_sizes = [layout.num_bytes for layout in layouts]
    content = torch.empty(sum(send_sizes), dtype=torch.uint8)
    for packet, layout, by_shard in zip(content.split(send_sizes), layouts, to_send, strict=True):
        write_packet(packet, layout, by_shard)
    receive_sizes = [layout.num_bytes for layout in received_layouts]
    received = _all_to_all(content, send_sizes, receive_sizes, ranks).split(receive_sizes)
    by_source = [read_packet(packet, layout) for packet, layout in zip(received, received_layouts, strict=True)]
    return InputDistOutput(
        ids=[values for values, _ in by_source],
        offsets=[compute_offsets(lengths) for _, lengths in by_source],
        num_samples=num_samples,
    )


def _all_to_all_layouts(
    layouts: list[PacketLayout], id_dtype: torch.dtype, num_bags: int, ranks: Ranks
) -> list[PacketLayout]:
    """Send every rank the layout of its packet, and receive the layouts of all ranks' packets for this one. Collective.

    id_dtype, num_bags: of the packets for this rank, which it knows.
    """
    numbers = torch.tensor([[layout.num_ids, layout.length_bytes] for layout in layouts]).flatten()
    sizes = [2] * len(layouts)
    received = _all_to_all(numbers, sizes, sizes, ranks).view(-1, 2).tolist()
    return [PacketLayout(num_ids, id_dtype, num_bags, length_bytes) for num_ids, length_bytes in received]


class ShardSelector:
    """Selects the ids of a share whose rows a shard holds."""

    def __init__(self, ids: JaggedIds[torch.Tensor]) -> None:
        self._lengths = ids.lengths
        self._ids = ids.values.split(ids.measure_sizes().num_ids)

    def select(self, spec: ShardSpec) -> ShardIds:
        """Select the ids of the shard's rows, numbered from its first row; a bag keeps its ids that remain."""
        lengths, ids = self._lengths[spec.feature], self._ids[spec.feature]
        block = spec.block
        if block.num_rows == spec.table.num_rows:
            return ShardIds(lengths, ids)
        rows = ids - block.first_row
        is_here = (rows >= 0) & (rows < block.num_rows)
        # With k[i] the number of selected ids before id i, a bag of ids [s, e) keeps k[e] - k[s].
        num_before = compute_offsets(is_here)
        bounds = num_before[compute_offsets(lengths)]
        return ShardIds(bounds.diff().to(lengths.dtype), rows[is_here])


def _all_to_all(to_send: torch.Tensor, send_sizes: list[int], receive_sizes: list[int], ranks: Ranks) -> torch.Tensor:
    if ranks.world_size == 1:
        return to_send
    received = to_send.new_empty(sum(receive_sizes))
    sent_bytes = (len(to_send) - send_sizes[ranks.rank]) * to_send.itemsize
    with ranks.exchange_clock.count_flight("ids", sent_bytes):
        dist.all_to_all_single(received, to_send, receive_sizes, send_sizes, group=ranks.ids_group)
    return received
