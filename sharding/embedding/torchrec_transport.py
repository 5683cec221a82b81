"""Tables that TorchRec shards, on GPUs and wherever the native operators are missing.

A batch goes through TorchRec's own stages, each once for the whole share: `input_dist` sends ids to the owners of their
rows, `compute` looks them up, `output_dist` brings the pooled embeddings of this rank's samples, [b, C] in one block.
Chunks are read of that block, and their gradients written over it: no value of it is needed any more. The update is one
backward pass, in two halves. The first goes through the output dist and sends gradients to the owners. The second
begins once they are at the scale of the update, and goes through the lookup: FBGEMM's fused optimizers move every
touched row once.

All ranks issue their collectives in one order, from the thread that trains: the input dist of the next batch (its sizes
are awaited, its ids keep travelling); the output dists of this one; in the update its gradient dists. Nothing of it
depends on chunks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torchrec.distributed import comm_ops
from torchrec.distributed.types import Awaitable
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from sharding.comm.process_groups import Ranks
from sharding.embedding.fused_optimizer import FusedUpdateParams, TableOptimizer
from sharding.embedding.input_dist import ShardSelector
from sharding.embedding.shard import Shard
from sharding.embedding.torchrec_columns import BlockColumns
from sharding.embedding.torchrec_tables import TorchRecTables
from sharding.jagged import JaggedIds
from sharding.planner import Plan


class TorchRecInputDist:
    """An input dist in flight."""

    def __init__(self, context: Any, in_flight: Awaitable[Any]) -> None:
        """Keep what `lookup` needs. context: TorchRec's of the batch. in_flight: ids of this rank's shards."""
        self.context = context
        self._in_flight = in_flight
        self._received: Any = None

    def wait(self) -> None:
        """Wait until no id is in flight."""
        self.receive()

    def receive(self) -> Any:
        """Return the ids of this rank's shards, by TorchRec's groups of tables, once they are here."""
        if self._received is None:
            self._received = self._in_flight.wait()
        return self._received


class TorchRecTransport:
    """The sharded tables of ranks that TorchRec's collectives connect."""

    def __init__(self, plan: Plan, optimizer: TableOptimizer, ranks: Ranks, dtype: torch.dtype) -> None:
        """Shard the tables. Collective. dtype: of pooled embeddings and gradients in transit."""
        self._tables = TorchRecTables(plan, optimizer, ranks, dtype)

    def list_shards(self) -> list[Shard]:
        return self._tables.list_shards()

    def start_input_dist(self, ids: JaggedIds[torch.Tensor]) -> TorchRecInputDist:
        """Start to send ids, after an exchange of their numbers which is awaited. Collective."""
        module = self._tables.module
        context = module.create_context()
        return TorchRecInputDist(context, module.input_dist(context, self._make_features(ids)).wait())

    def lookup(self, handle: TorchRecInputDist, learning_rate: float) -> "_PooledShare":
        """Look up the share and receive its pooled embeddings; see `Transport.lookup`. Collective."""
        module = self._tables.module
        self._tables.set_learning_rate(learning_rate)
        with undivided_gradients():
            looked_up = module.compute(handle.context, handle.receive())
            # Cut off, so that the gradient of each can be brought to the scale of the update after its arrival. The
            # empty tensor of a rank without a shard of some type is fp32, whatever the others send and receive.
            arriving = [
                block.detach().to(self._tables.block_dtype).requires_grad_(torch.is_grad_enabled())
                for block in looked_up
            ]
            pooled = module.output_dist(handle.context, arriving).wait()
        return _PooledShare(self._tables.columns, looked_up, arriving, pooled.values(), learning_rate)

    def _make_features(self, ids: JaggedIds[torch.Tensor]) -> KeyedJaggedTensor:
        """Return the ids as TorchRec's features, with the numbers of ids that it would else ask the device for."""
        if self._tables.are_whole:
            values, lengths, num_ids = ids.values, ids.lengths.flatten(), ids.measure_sizes().num_ids
        else:
            selector = ShardSelector(ids)
            selected = [selector.select(table.part) for table in self._tables.tables]
            values = torch.cat([of_table.ids for of_table in selected])
            lengths = torch.cat([of_table.lengths for of_table in selected])
            num_ids = [len(of_table.ids) for of_table in selected]
        return KeyedJaggedTensor(
            keys=self._tables.features,
            values=values,
            lengths=lengths,
            stride=ids.lengths.shape[1],
            length_per_key=num_ids,
        )


class _PooledShare:
    """Block of a share's pooled embeddings, later overwritten by their gradients."""

    def __init__(
        self,
        columns: BlockColumns,
        looked_up: list[torch.Tensor],
        arriving: list[torch.Tensor],
        pooled: torch.Tensor,
        learning_rate: float,
    ) -> None:
        """Keep both halves of the autograd graph, which is cut after the lookup.

        looked_up: results of the lookup, the end of the first half. arriving: the same tensors detached, the beginning
        of the second half, whose result is `pooled`, [b, C]. learning_rate: the one that the lookup has fixed for the
        update.
        """
        self._columns, self._learning_rate = columns, learning_rate
        self._looked_up, self._arriving, self._pooled = looked_up, arriving, pooled
        self._block = pooled.detach()
        """[b, C] gradients of samples that were written, pooled embeddings of all others."""

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        self._columns.read(self._block[start:end], out)

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        self._columns.write(gradient, self._block[start:end])

    def discard(self) -> None:
        # No gradient has left this rank yet.
        self._release()

    def apply_update(self, params: FusedUpdateParams) -> None:
        """Send gradients to the owners of rows, and update these. Collective."""
        assert params.learning_rate == self._learning_rate, "FBGEMM has fixed the learning rate in the lookup"
        with undivided_gradients():
            # On one rank the gradients are the block itself; `backward` would copy it, since it is still in use.
            gradients = torch.autograd.grad(self._pooled, self._arriving, self._block, allow_unused=True)
        for looked_up, gradient in zip(self._looked_up, gradients, strict=True):
            # A rank without a shard of some type has looked nothing up.
            if gradient is None or looked_up.grad_fn is None:
                continue
            if params.gradient_multiplier != 1.0:
                gradient.mul_(params.gradient_multiplier)
            looked_up.backward(gradient)
        self._release()

    def _release(self) -> None:
        """Release the memory of the batch, which the next one may need before this object is gone."""
        self._looked_up, self._arriving = [], []
        self._pooled = self._block = self._block.new_empty(0)


@contextmanager
def undivided_gradients() -> Iterator[None]:
    """Have TorchRec's output dists of this block, and their backward passes, sum gradients over ranks.

    By default it divides them by the number of ranks, for losses that are means over a rank's share; ours are already
    divided by the rows of the whole batch.
    """
    before = comm_ops.get_gradient_division()
    comm_ops.set_gradient_division(False)
    try:
        yield
    finally:
        comm_ops.set_gradient_division(before)
