"""The input dist of the network transport: each rank sends its ids to the ranks that own their rows."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.embedding.offsets import compute_offsets
from sharding.embedding.shard import ShardSpec
from sharding.jagged import JaggedIds


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


def all_to_all_ids(
    ids: JaggedIds[torch.Tensor], specs: list[list[ShardSpec]], group: dist.ProcessGroup
) -> InputDistOutput:
    """Send every rank the ids of its shards, and receive those of this rank's shards: two all-to-alls. Collective.

    specs: shards of every rank. group: process group that no other thread uses at the same time.
    """
    rank, size = group.rank(), ids.lengths.shape[1]
    selection = ShardSelector(ids)
    to_send = [[selection.select(spec) for spec in of_rank] for of_rank in specs]
    lengths = _all_to_all(
        torch.cat([of_shard.lengths for of_rank in to_send for of_shard in of_rank] or [ids.lengths.new_empty(0)]),
        [len(of_rank) * size for of_rank in specs],
        [len(specs[rank]) * size] * len(specs),
        group,
    )
    received_lengths = lengths.view(len(specs), -1)  # [W, shards * b]
    num_received = received_lengths.sum(dim=1).tolist()
    received = _all_to_all(
        torch.cat([of_shard.ids for of_rank in to_send for of_shard in of_rank] or [ids.values.new_empty(0)]),
        [sum(len(of_shard.ids) for of_shard in of_rank) for of_rank in to_send],
        num_received,
        group,
    )
    return InputDistOutput(
        ids=list(received.split(num_received)),
        offsets=[compute_offsets(of_source) for of_source in received_lengths],
        num_samples=size,
    )


@dataclass(frozen=True)
class ShardIds:
    """The ids of a share whose rows one shard holds."""

    lengths: torch.Tensor
    """[b]"""
    ids: torch.Tensor
    """Rows of the shard."""


class ShardSelector:
    """Selects the ids of a share whose rows a shard holds."""

    def __init__(self, ids: JaggedIds[torch.Tensor]) -> None:
        self._lengths = ids.lengths
        self._ids = ids.values.split(ids.lengths.sum(dim=1).tolist())

    def select(self, spec: ShardSpec) -> ShardIds:
        """Select the ids of the shard's rows, numbered from its first row; a bag keeps those of its ids that remain."""
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


def _all_to_all(
    to_send: torch.Tensor, send_sizes: list[int], receive_sizes: list[int], group: dist.ProcessGroup
) -> torch.Tensor:
    if group.size() == 1:
        return to_send
    received = to_send.new_empty(sum(receive_sizes))
    dist.all_to_all_single(received, to_send, receive_sizes, send_sizes, group=group)
    return received
