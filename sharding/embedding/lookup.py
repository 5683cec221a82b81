"""What an owner of shards does for one batch of the network transport: pools slices for all ranks, and updates."""

from typing import Protocol

import torch

from sharding.embedding import native_ops as native
from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.input_dist import InputDistOutput
from sharding.embedding.shard import Shard, column_ranges, make_shard, shard_specs_on
from sharding.embedding.slices import Slices
from sharding.embedding.transport import FusedUpdateParams
from sharding.planner import Plan


class LookupBatch(Protocol):
    """The bags of all ranks in this rank's shards. A slice is [W * m, C]: by rank, by sample, the columns of the
    shards side by side."""

    def pooled(self, number: int) -> torch.Tensor:
        """Of slice `number`, in the exchange's number format."""
        ...

    def gradient(self, number: int) -> torch.Tensor:
        """Where the gradient of slice `number` is to be written."""
        ...

    def update(self) -> None:
        """Move all shards, once every slice has its gradient."""
        ...


class EmbeddingLookup(Protocol):
    """The shards of this rank, and the kernels that work on them."""

    shards: list[Shard]

    def batch(self, arrived: InputDistOutput, slices: Slices, terms: FusedUpdateParams) -> LookupBatch:
        """The bags of one batch."""
        ...


class NativeLookup:
    """By the own operators: rows are looked up slice by slice, so that of the block there are gradients alone."""

    def __init__(self, plan: Plan, optimizer: TableOptimizer, rank: int, dtype: torch.dtype) -> None:
        """dtype: of the exchange, which gradients are kept in as well."""
        places = shard_specs_on(plan, rank, replicated=False)
        self.shards = [make_shard(place, optimizer, torch.empty(place.shape)) for place in places]
        self.optimizer, self.dtype = optimizer, dtype

    def batch(self, arrived: InputDistOutput, slices: Slices, terms: FusedUpdateParams) -> LookupBatch:
        return _NativeBatch(self, arrived, slices, terms)


class _NativeBatch:
    def __init__(self, owner: NativeLookup, arrived: InputDistOutput, slices: Slices, terms: FusedUpdateParams) -> None:
        self._owner, self._arrived, self._slices, self._terms = owner, arrived, slices, terms
        self._num_columns, self._columns = column_ranges([shard.spec for shard in owner.shards])
        self._gradients: torch.Tensor | None = None

    def pooled(self, number: int) -> torch.Tensor:
        start, end = self._slices.bounds(number)
        pooled = torch.empty(len(self._arrived.ids) * (end - start), self._num_columns)
        for source, of_source in enumerate(pooled.split(end - start)):
            for index, (shard, columns) in enumerate(zip(self._owner.shards, self._columns, strict=True)):
                offsets = self._arrived.offsets_of(source, index, start, end)
                native.pool(shard.weights, self._arrived.ids[source], offsets, 0, of_source[:, columns])
        return pooled.to(self._owner.dtype)

    def gradient(self, number: int) -> torch.Tensor:
        if self._gradients is None:
            num_rows = len(self._arrived.ids) * self._arrived.num_samples
            self._gradients = torch.empty(num_rows, self._num_columns, dtype=self._owner.dtype)
        return self._slices.rows(self._gradients, number)

    def update(self) -> None:
        for index, (shard, columns) in enumerate(zip(self._owner.shards, self._columns, strict=True)):
            ids: list[torch.Tensor] = []
            offsets: list[torch.Tensor] = []
            gradients: list[torch.Tensor] = []
            # Rank after rank, in the order of their samples, as over memory: both ways add up alike to the bit.
            for source, of_source in enumerate(self._arrived.ids):
                for number, (start, end) in enumerate(self._slices):
                    first = source * (end - start)
                    ids.append(of_source)
                    offsets.append(self._arrived.offsets_of(source, index, start, end))
                    gradients.append(self.gradient(number)[first : first + end - start, columns])
            native.apply_update(shard, 0, ids, offsets, gradients, self._owner.optimizer, self._terms)
