"""Small tables of which every rank has a copy: looked up at home, their gradients summed over ranks.

They are stepped by the tables' optimizer, as all others are: on every rank by the same numbers, so that copies stay
equal.
"""

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.jagged import JaggedIds, offsets_of
from sharding.embedding.shard import Shard, make_shard, shard_specs_on
from sharding.embedding.transport import FusedUpdateParams
from sharding.embedding.whole_table import is_native, pool_rows, sum_rows
from sharding.planner import Plan


class ReplicatedTransport:
    """The tables of a plan that are on every rank."""

    def __init__(self, plan: Plan, optimizer: TableOptimizer, ranks: Ranks) -> None:
        self._optimizer, self._ranks = optimizer, ranks
        places = shard_specs_on(plan, ranks.rank, replicated=True)
        self.shards = [make_shard(place, optimizer, torch.empty(place.shape, device=ranks.device)) for place in places]

    def start_input_dist(self, bags: JaggedIds) -> JaggedIds:
        """Nothing travels."""
        return bags

    def lookup(self, sent: JaggedIds, terms: FusedUpdateParams) -> "_PooledShare":
        """Not collective."""
        return _PooledShare(self.shards, sent, self._optimizer, terms, self._ranks)


class _PooledShare:
    def __init__(
        self, shards: list[Shard], bags: JaggedIds, optimizer: TableOptimizer, terms: FusedUpdateParams, ranks: Ranks
    ) -> None:
        self._optimizer, self._terms, self._ranks = optimizer, terms, ranks
        self._tables = [_TableShare(shard, ids, offsets) for shard, (ids, offsets) in _by_feature(shards, bags)]

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        for table in self._tables:
            table.read_chunk(start, end, out[:, table.feature])

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        for table in self._tables:
            table.write_gradient(start, end, gradient[:, table.feature])

    def discard(self) -> None:
        pass

    def apply_update(self) -> None:
        """Collective: one sum over ranks for all tables."""
        shards = [table.shard for table in self._tables]
        flat = shards[0].weights.new_empty(sum(shard.weights.numel() for shard in shards))
        parts = flat.split([shard.weights.numel() for shard in shards])
        sums = [part.view(shard.weights.shape) for part, shard in zip(parts, shards, strict=True)]
        for table, of_table in zip(self._tables, sums, strict=True):
            table.sum_gradients(of_table)
        dist.all_reduce(flat, group=self._ranks.table_group)
        flat *= self._terms.gradient_multiplier
        for shard, of_table in zip(shards, sums, strict=True):
            self._optimizer.update_all_rows(shard.weights, shard.state, of_table, self._terms.learning_rate)


class _TableShare:
    """The bags of this rank's samples in one table."""

    def __init__(self, shard: Shard, ids: torch.Tensor, offsets: torch.Tensor) -> None:
        """ids: of the table's bags; offsets: [b + 1] places in them."""
        self.shard, self.feature = shard, shard.spec.feature
        self._ids, self._offsets = ids, offsets
        self._kept: torch.Tensor | None = None
        """[b, D] Gradients, and by torch alone pooled embeddings until these take their place."""
        if not is_native(shard.weights):
            pool_rows(shard.weights, ids, offsets, self._all())

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        if is_native(self.shard.weights):
            pool_rows(self.shard.weights, self._ids, self._offsets[start : end + 1], out)
        else:
            out.copy_(self._all()[start:end])

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        self._all()[start:end] = gradient

    def sum_gradients(self, out: torch.Tensor) -> None:
        """[R, C]"""
        sum_rows(self._ids, self._offsets, self._all(), out)

    def _all(self) -> torch.Tensor:
        if self._kept is None:
            self._kept = self.shard.weights.new_empty(len(self._offsets) - 1, self.shard.weights.shape[1])
        return self._kept


def _by_feature(shards: list[Shard], bags: JaggedIds) -> list[tuple[Shard, tuple[torch.Tensor, torch.Tensor]]]:
    """Of each table its ids, and the places of its bags in them."""
    by_feature = bags.lengths.view(bags.num_features, -1)
    ids = bags.ids.split(by_feature.sum(dim=1).tolist())
    features = [shard.spec.feature for shard in shards]
    return [(shard, (ids[n], offsets_of(by_feature[n]))) for shard, n in zip(shards, features, strict=True)]
