"""Small tables of which every rank has a copy: looked up at home, their gradients summed over ranks.

They are stepped by the tables' optimizer, as all others are: on every rank by the same numbers, so that copies stay
equal.
"""

import torch
import torch.distributed as dist

from sharding.plan import Plan
from sharding.ranks import Ranks
from sharding.tables.bags import Bags
from sharding.tables.optimizer import TableOptimizer
from sharding.tables.rows import pool_rows, sum_rows
from sharding.tables.shard import Shard, make_shard, places_on
from sharding.tables.transport import Terms


class ReplicatedTables:
    """The tables of a plan that are on every rank."""

    def __init__(self, plan: Plan, optimizer: TableOptimizer, ranks: Ranks) -> None:
        self._optimizer, self._ranks = optimizer, ranks
        places = places_on(plan, ranks.rank, replicated=True)
        self.shards = [make_shard(place, optimizer, torch.empty(place.shape, device=ranks.device)) for place in places]

    def send(self, bags: Bags) -> Bags:
        """Nothing travels."""
        return bags

    def lookup(self, sent: Bags, terms: Terms) -> "_ReplicatedShare":
        """Not collective."""
        return _ReplicatedShare(self.shards, sent, self._optimizer, terms, self._ranks)


class _ReplicatedShare:
    def __init__(self, shards: list[Shard], bags: Bags, optimizer: TableOptimizer, terms: Terms, ranks: Ranks) -> None:
        self._shards, self._ids = shards, bags.ids
        self._optimizer, self._terms, self._ranks = optimizer, terms, ranks
        offsets, size = bags.offsets(), bags.num_samples
        self._offsets = [offsets[shard.place.feature * size : (shard.place.feature + 1) * size + 1] for shard in shards]
        """Of each table's bags, [b + 1]."""
        self._gradients: list[torch.Tensor] = []
        """Of each table, [b, D]."""

    def fill(self, start: int, end: int, out: torch.Tensor) -> None:
        for shard, offsets in zip(self._shards, self._offsets, strict=True):
            pool_rows(shard.weights, self._ids, offsets[start : end + 1], out[:, shard.place.feature])

    def take(self, start: int, end: int, gradient: torch.Tensor) -> None:
        if not self._gradients:
            size = len(self._offsets[0]) - 1
            self._gradients = [shard.weights.new_empty(size, shard.weights.shape[1]) for shard in self._shards]
        for shard, kept in zip(self._shards, self._gradients, strict=True):
            kept[start:end] = gradient[:, shard.place.feature]

    def update(self) -> None:
        """Collective."""
        for shard, offsets, gradients in zip(self._shards, self._offsets, self._gradients, strict=True):
            total = sum_rows(shard.weights, self._ids, offsets, gradients)
            dist.all_reduce(total, group=self._ranks.table_group)
            total *= self._terms.factor
            self._optimizer.step_whole(shard.weights, shard.state, total, self._terms.rate)
