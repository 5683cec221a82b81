"""Moving average of the tables' weights, beside those that are trained, and under the same plan."""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.embedding.sharded_tables import ShardedTables
from sharding.embedding.state_dict import NamedTables

ELEMENTS_PER_SWAP = 1 << 20
"""Elements that are exchanged at a time, through a copy of 4 MiB."""


class TableAverage:
    """The average of one rank's shards. All ranks make the same calls in the same order."""

    def __init__(self, tables: ShardedTables, ranks: Ranks) -> None:
        """Allocate an average, still zeros, of every shard of this rank."""
        self._tables, self._ranks = tables, ranks
        self._averages = [torch.zeros_like(shard.weights) for shard in tables.list_shards()]

    @torch.no_grad()
    def move(self, weight: float) -> None:
        """Move every average towards the present weights, average += weight (w - average). One pass over the shards."""
        for average, shard in zip(self._averages, self._tables.list_shards(), strict=True):
            average.lerp_(shard.weights, weight)

    @torch.no_grad()
    def restart_rows(self, rows: Mapping[int, torch.Tensor]) -> None:
        """Let the averages of some rows begin anew, at their present weights. rows: as for `reset_rows`."""
        for average, shard in zip(self._averages, self._tables.list_shards(), strict=True):
            if (of_table := rows.get(shard.spec.feature)) is not None:
                places = of_table - shard.spec.block.first_row
                places = places[(places >= 0) & (places < len(average))].to(average.device)
                average[places] = shard.weights[places]

    def swap(self) -> None:
        """Exchange averages and weights: lookups then read the averages, until the next call. Collective.

        Nothing is rounded, so that a second call restores the weights to the bit. Ids may be in flight, but no lookup.
        """
        # In shared memory other ranks read this rank's rows: first their last lookup ends, then none begins too early.
        dist.barrier(self._ranks.table_group)
        swap_tensors(self._averages, [shard.weights for shard in self._tables.list_shards()])
        dist.barrier(self._ranks.table_group)

    def state_dict(self) -> NamedTables:
        """Return the averages by the tables' names, as torch.distributed.checkpoint saves and loads them in place."""
        return self._tables.arrange_by_table(self._averages)


@torch.no_grad()
def swap_tensors(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> None:
    """Exchange the contents of tensors, pair by pair, with a small piece in memory twice."""
    for one, other in zip(some, others, strict=True):
        pairs = zip(
            one.view(-1).split(ELEMENTS_PER_SWAP), other.detach().view(-1).split(ELEMENTS_PER_SWAP), strict=True
        )
        for part, other_part in pairs:
            kept = part.clone()
            part.copy_(other_part)
            other_part.copy_(kept)
