"""Small tables with a copy on every rank: looked up locally, their gradients summed over ranks.

The table optimizer updates them like all others, on every rank from the same numbers, so that copies stay equal.
"""

from itertools import pairwise

import torch
import torch.distributed as dist
from torch.nn import functional as F

from sharding.comm.exchange_clock import count_all_reduced_bytes
from sharding.comm.process_groups import Ranks
from sharding.embedding import native_ops
from sharding.embedding.fused_optimizer import FusedUpdateParams, TableOptimizer
from sharding.embedding.input_dist import ReadyIds, compute_offsets
from sharding.embedding.shard import Shard, list_shard_specs, make_shard
from sharding.jagged import JaggedIds
from sharding.planner import Plan

BAGS_PER_BLOCK = 1 << 16
"""Bags whose gradients torch sums at a time: it makes D float64 numbers for each of their ids."""


class ReplicatedTransport:
    """The tables of a plan that are on every rank."""

    def __init__(self, plan: Plan, optimizer: TableOptimizer, ranks: Ranks) -> None:
        """Allocate this rank's copies."""
        self._optimizer, self._ranks = optimizer, ranks
        specs = list_shard_specs(plan, ranks.rank, replicated=True)
        self._shards = [make_shard(spec, optimizer, torch.empty(spec.shape, device=ranks.device)) for spec in specs]

    def list_shards(self) -> list[Shard]:
        return self._shards

    def start_input_dist(self, ids: JaggedIds[torch.Tensor]) -> ReadyIds:
        """Return the ids as they are: every rank has all rows."""
        return ReadyIds(ids)

    def lookup(self, handle: ReadyIds, learning_rate: float) -> "_PooledShare":  # noqa: ARG002
        """Prepare to read chunks; see `Transport.lookup`. Not collective."""
        return _PooledShare(self._shards, handle.ids, self._optimizer, self._ranks)


class _PooledShare:
    def __init__(
        self, shards: list[Shard], ids: JaggedIds[torch.Tensor], optimizer: TableOptimizer, ranks: Ranks
    ) -> None:
        self._optimizer, self._ranks = optimizer, ranks
        ids_by_feature = ids.values.split(ids.measure_sizes().num_ids)
        features = [shard.spec.feature for shard in shards]
        self._tables = [
            _TableShare(shard, ids_by_feature[feature], compute_offsets(ids.lengths[feature]))
            for shard, feature in zip(shards, features, strict=True)
        ]

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        for table in self._tables:
            table.read_chunk(start, end, out[:, table.feature, table.shard.spec.columns])

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        for table in self._tables:
            table.write_gradient(start, end, gradient[:, table.feature, table.shard.spec.columns])

    def discard(self) -> None:
        pass

    def apply_update(self, params: FusedUpdateParams) -> None:
        """Sum the gradients of all tables over ranks in one all-reduce, and update every row. Collective.

        If the optimizer needs them, counts of each row's occurrences are summed in the same all-reduce.
        """
        shards = [table.shard for table in self._tables]
        sizes = [shard.weights.numel() for shard in shards]
        num_rows = [len(shard.weights) for shard in shards] if self._optimizer.count_rule.needs_counts else []
        flat = shards[0].weights.new_empty(sum(sizes) + sum(num_rows))
        parts = flat.split([*sizes, *num_rows])
        sums = [part.view(shard.weights.shape) for part, shard in zip(parts, shards, strict=False)]
        counts = parts[len(shards) :] or [None] * len(shards)
        for table, summed, counted in zip(self._tables, sums, counts, strict=True):
            table.sum_gradients(summed)
            if counted is not None:
                table.count_occurrences(counted)
        clock, sent_bytes = self._ranks.exchange_clock, count_all_reduced_bytes(flat, self._ranks.world_size)
        with clock.count_flight("gradients of copies", sent_bytes), clock.count_wait("gradients of copies"):
            dist.all_reduce(flat, group=self._ranks.table_group)
        flat[: sum(sizes)] *= params.gradient_multiplier
        for shard, summed, counted in zip(shards, sums, counts, strict=True):
            self._optimizer.update_all_rows(shard.weights, shard.state, summed, params, counted)


class _TableShare:
    """The bags of this rank's samples in one table."""

    def __init__(self, shard: Shard, ids: torch.Tensor, offsets: torch.Tensor) -> None:
        """Keep the bags; pool all of them at once where torch does it.

        ids: ids of all bags of the table, one bag after another. offsets: [b + 1], where each bag begins in `ids`.
        """
        self.shard, self.feature = shard, shard.spec.feature
        self._ids, self._offsets = ids, offsets
        self._bag_buffer: torch.Tensor | None = None
        """[b, D] gradients; where torch pools, pooled embeddings until the gradients overwrite them."""
        if not is_native(shard.weights):
            pool_rows(shard.weights, ids, offsets, self._get_bag_buffer())

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        """Write the pooled embeddings of samples [start, end) into `out` [c, D]."""
        if is_native(self.shard.weights):
            pool_rows(self.shard.weights, self._ids, self._offsets[start : end + 1], out)
        else:
            out.copy_(self._get_bag_buffer()[start:end])

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        """Store the gradient [c, D] of samples [start, end)."""
        self._get_bag_buffer()[start:end] = gradient

    def sum_gradients(self, out: torch.Tensor) -> None:
        """Write the sum of each row's gradients into `out` [R, D]."""
        sum_gradients_by_row(self._ids, self._offsets, self._get_bag_buffer(), out)

    def count_occurrences(self, out: torch.Tensor) -> None:
        """Write how often this rank's ids name each row into `out` [R]."""
        out.copy_(torch.bincount(self._ids, minlength=len(out)))

    def _get_bag_buffer(self) -> torch.Tensor:
        if self._bag_buffer is None:
            self._bag_buffer = self.shard.weights.new_empty(len(self._offsets) - 1, self.shard.weights.shape[1])
        return self._bag_buffer


def is_native(weights: torch.Tensor) -> bool:
    """Whether the native operators work on this table."""
    return weights.device.type == "cpu" and native_ops.is_built()


def pool_rows(weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor) -> None:
    """Write the sum of each bag's rows of `weights` [R, C] into `out` [m, C].

    offsets: [m + 1] indices into `ids`; torch needs them to begin with the first id and end with the last one.
    """
    if is_native(weights):
        native_ops.pool(weights, ids, offsets, 0, out)
    else:
        out.copy_(F.embedding_bag(ids, weights, offsets, mode="sum", include_last_offset=True))


def sum_gradients_by_row(ids: torch.Tensor, offsets: torch.Tensor, gradients: torch.Tensor, out: torch.Tensor) -> None:
    """Write, for each row of `out` [R, C], the sum of the gradients [m, C] of all bags that name it.

    offsets: [m + 1] indices into `ids`, from the first id to the last one.
    """
    if is_native(out):
        # One step of gradient descent from zero at learning rate -1: 0 - (-1) sum of gradients.
        native_ops.apply_plain_sgd(out.zero_(), ids, offsets, gradients, learning_rate=-1.0)
        return
    # In float64: most bags of a batch may name the same row, and `index_add_` adds them one by one. Bags are taken in
    # blocks, since their gradients are repeated for every id; the ids of a block are those between two bounds.
    sums = torch.zeros(out.shape, dtype=torch.float64, device=out.device)
    first_bags = range(0, len(gradients), BAGS_PER_BLOCK)
    id_bounds = [0, len(ids)]
    if len(gradients) > BAGS_PER_BLOCK:
        # On a GPU this waits for all of its work.
        id_bounds = torch.cat([offsets[:-1:BAGS_PER_BLOCK], offsets[-1:]]).tolist()
    for first_bag, (start_id, end_id) in zip(first_bags, pairwise(id_bounds), strict=True):
        lengths = offsets[first_bag : first_bag + BAGS_PER_BLOCK + 1].diff()
        by_bag = gradients[first_bag : first_bag + BAGS_PER_BLOCK].double()
        by_id = by_bag.repeat_interleave(lengths, dim=0, output_size=end_id - start_id)
        sums.index_add_(0, ids[start_id:end_id], by_id)
    out.copy_(sums)
