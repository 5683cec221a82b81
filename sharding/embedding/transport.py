"""Interface of the transports between ranks and embedding tables.

The life of a batch, in the words of TorchRec: input dist (ids go to the ranks that own their rows), lookup (rows are
read and pooled), output dist (pooled embeddings come to the ranks of their samples), and back: the gradient of the
pooled embeddings goes to the owners, and they make one fused update of their rows.

There are four transports: `memory_transport` (all ranks read one memory: nothing is exchanged), `network_transport`
(all-to-all between CPUs), `torchrec_transport` (TorchRec's sharded tables, on GPUs and CPUs) and `replicated_transport`
(small tables with a copy on every rank).
"""

from typing import Any, Protocol

import torch

from sharding.embedding.fused_optimizer import FusedUpdateParams
from sharding.embedding.shard import Shard
from sharding.jagged import JaggedIds


class InputDistHandle(Protocol):
    """An input dist in flight."""

    def wait(self) -> None:
        """Wait until no id is in flight."""
        ...


class PooledShare(Protocol):
    """Pooled embeddings of this rank's share of one batch, read chunk by chunk in the order of the samples."""

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        """Write the pooled embeddings of samples [start, end) into `out` [c, F, D].

        Columns of features that other transports hold are left as they are.
        """
        ...

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        """Store the gradient [c, F, D] of samples [start, end); columns of other transports' features are ignored."""
        ...

    def discard(self) -> None:
        """Give up the update: wait for what is in flight, and forget it."""
        ...

    def apply_update(self, params: FusedUpdateParams) -> None:
        """Update every table once. May be collective: all ranks call it, after a vote that every chunk of every rank
        has its gradient.
        """
        ...


class Transport(Protocol):
    """The shards of a plan's tables, and how ids and gradients reach them."""

    def list_shards(self) -> list[Shard]:
        """List the shards that this rank holds, in the order of the tables, for reading and writing until the next
        lookup.

        Rows that a GPU caches are written back to them, and looked up anew afterwards.
        """
        ...

    def start_input_dist(self, ids: JaggedIds[torch.Tensor]) -> InputDistHandle:
        """Start to send the ids of this rank's share to the owners of their rows. Collective; returns at once if it
        can, with a handle for `lookup`.
        """
        ...

    def lookup(self, handle: Any, learning_rate: float) -> PooledShare:
        """Look up the ids of an input dist that this transport has started. Collective.

        learning_rate: `FusedUpdateParams.learning_rate` of the update to come, for kernels that fix it in their forward
        pass, as FBGEMM's do.
        Under `torch.no_grad` nothing is kept for an update.
        """
        ...
