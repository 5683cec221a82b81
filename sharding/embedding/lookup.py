"""The lookup of the network transport: what the owner of shards does for one batch, for all ranks."""

import torch

from sharding.embedding import native_ops
from sharding.embedding.fused_optimizer import FusedUpdateParams, TableOptimizer
from sharding.embedding.input_dist import InputDistOutput
from sharding.embedding.shard import Shard, lay_out_columns
from sharding.embedding.slices import Slices


class LookupBatch:
    """One batch on its way through this rank's shards by the native operators, slice by slice.

    A slice is [W * m, C]: by rank, by sample, the columns of the shards side by side. Only gradients are in memory for
    the whole batch.
    """

    def __init__(
        self, shards: list[Shard], optimizer: TableOptimizer, dtype: torch.dtype, ids: InputDistOutput, slices: Slices
    ) -> None:
        """Keep what the slices need.

        dtype: number format in which pooled embeddings and gradients travel; gradients wait for the update in it, too.
        """
        self._shards, self._optimizer, self._dtype = shards, optimizer, dtype
        self._ids, self._slices = ids, slices
        self._num_columns, self._columns = lay_out_columns([shard.spec for shard in shards])
        self._gradients: torch.Tensor | None = None
        """[W * b, C], by slice, by rank, by sample; allocated with the first gradient."""

    def pool_slice(self, number: int) -> torch.Tensor:
        """Pool the embeddings of slice `number`, in the dtype of the exchange."""
        start, end = self._slices.get_bounds(number)
        pooled = torch.empty(len(self._ids.ids) * (end - start), self._num_columns)
        for source, out in enumerate(pooled.split(end - start)):
            for index, (shard, columns) in enumerate(zip(self._shards, self._columns, strict=True)):
                offsets = self._ids.view_offsets(source, index, start, end)
                native_ops.pool(shard.weights, self._ids.ids[source], offsets, 0, out[:, columns])
        return pooled.to(self._dtype)

    def get_gradient_slice(self, number: int) -> torch.Tensor:
        """Return the memory that the gradient of slice `number` is to be written to."""
        if self._gradients is None:
            num_rows = len(self._ids.ids) * self._ids.num_samples
            self._gradients = torch.empty(num_rows, self._num_columns, dtype=self._dtype)
        return self._slices.view_rows(self._gradients, number)

    def apply_update(self, params: FusedUpdateParams) -> None:
        """Update all shards, once every slice has its gradient."""
        for index, (shard, columns) in enumerate(zip(self._shards, self._columns, strict=True)):
            ids: list[torch.Tensor] = []
            offsets: list[torch.Tensor] = []
            gradients: list[torch.Tensor] = []
            # Rank after rank, in the order of their samples, as the memory transport does: then both transports add up
            # a row's gradients in the same order, and agree to the bit.
            for source, of_source in enumerate(self._ids.ids):
                for number, (start, end) in enumerate(self._slices):
                    first = source * (end - start)
                    ids.append(of_source)
                    offsets.append(self._ids.view_offsets(source, index, start, end))
                    gradients.append(self.get_gradient_slice(number)[first : first + end - start, columns])
            native_ops.apply_update(shard, 0, ids, offsets, gradients, self._optimizer, params)
