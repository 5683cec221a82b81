"""Which ids go to which rank, and what arrives: the ids' way of the network transport."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.embedding.jagged import JaggedIds, offsets_of
from sharding.embedding.shard import ShardSpec
from sharding.embedding.slices import Slices


@dataclass(frozen=True)
class InputDistOutput:
    """What this rank is to look up: for each of its shards the bags of all ranks' samples."""

    ids: list[torch.Tensor]
    """By source rank: [n] int64, rows of its shards, shard by shard, sample by sample."""
    offsets: list[torch.Tensor]
    """By source rank: [shards * b + 1] int64, places in its ids."""
    num_samples: int
    """b of every rank."""

    def offsets_of(self, source: int, shard: int, start: int, end: int) -> torch.Tensor:
        """[end - start + 1] Of the bags of some samples of `source` in one of the shards."""
        first = shard * self.num_samples
        return self.offsets[source][first + start : first + end + 1]

    def bounds_of(self, source: int, num_shards: int, slices: Slices) -> torch.Tensor:
        """[shards, slices + 1] Where the slices of each shard begin in the ids of `source`, and the last one ends."""
        starts = torch.tensor([*(start for start, _ in slices), self.num_samples])
        shards = torch.arange(num_shards).unsqueeze(1) * self.num_samples
        return self.offsets[source][(shards + starts).to(self.offsets[source].device)]


def all_to_all_ids(bags: JaggedIds, places: list[list[ShardSpec]], group: dist.ProcessGroup) -> InputDistOutput:
    """Send every rank the ids of its shards, and take in those of one's own. Collective.

    places: of every rank's shards. group: used by nobody else meanwhile.
    """
    rank, size = group.rank(), bags.num_samples
    parts = _Selection(bags)
    going = [[parts.of(place) for place in of_rank] for of_rank in places]
    lengths = _all_to_all(
        torch.cat([part.lengths for of_rank in going for part in of_rank] or [bags.lengths.new_empty(0)]),
        [len(of_rank) * size for of_rank in places],
        [len(places[rank]) * size] * len(places),
        group,
    )
    arriving = lengths.view(len(places), -1)  # [W, shards * b]
    ids = _all_to_all(
        torch.cat([part.ids for of_rank in going for part in of_rank] or [bags.ids.new_empty(0)]),
        [sum(len(part.ids) for part in of_rank) for of_rank in going],
        arriving.sum(dim=1).tolist(),
        group,
    )
    return InputDistOutput(
        ids=list(ids.split(arriving.sum(dim=1).tolist())),
        offsets=[offsets_of(of_source) for of_source in arriving],
        num_samples=size,
    )


@dataclass(frozen=True)
class _ShardIds:
    """What one shard gets of a share: an entry of `lengths` [b] a sample, and the rows."""

    lengths: torch.Tensor
    ids: torch.Tensor


class _Selection:
    """The bags of a share, piece by piece."""

    def __init__(self, bags: JaggedIds) -> None:
        self._lengths = bags.lengths.view(bags.num_features, -1)
        self._ids = bags.ids.split(self._lengths.sum(dim=1).tolist())

    def of(self, place: ShardSpec) -> _ShardIds:
        lengths, ids = self._lengths[place.feature], self._ids[place.feature]
        block = place.block
        if block.num_rows == place.table.num_rows:
            return _ShardIds(lengths, ids)
        rows = ids - block.first_row
        is_here = (rows >= 0) & (rows < block.num_rows)
        num_before = offsets_of(is_here)
        ends = num_before[offsets_of(lengths)]
        return _ShardIds(ends.diff().to(lengths.dtype), rows[is_here])


def _all_to_all(
    going: torch.Tensor, going_sizes: list[int], arriving_sizes: list[int], group: dist.ProcessGroup
) -> torch.Tensor:
    if group.size() == 1:
        return going
    arriving = going.new_empty(sum(arriving_sizes))
    dist.all_to_all_single(arriving, going, arriving_sizes, going_sizes, group=group)
    return arriving
