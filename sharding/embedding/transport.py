"""What a way between ranks and tables must offer. There are three: memory, network, and copies on every rank."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from sharding.embedding.jagged import JaggedIds
from sharding.embedding.shard import Shard


@dataclass(frozen=True)
class FusedUpdateParams:
    """Of the update of one batch."""

    learning_rate: float
    """That S times the true gradient is stepped by."""
    gradient_multiplier: float
    """Takes the gradients that arrive to S times the true ones."""


class InputDistHandle(Protocol):
    """Ids on their way."""

    def wait(self) -> None:
        """Until nothing is on its way any more."""
        ...


class PooledShare(Protocol):
    """Of one batch, for this rank's share of it. Chunks come in the order of the samples."""

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        """Write the pooled embeddings of samples from `start` to `end` into `out` [c, F, D], as far as they are its."""
        ...

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        """Keep what concerns its features of the gradient [c, F, D] of what these samples were given."""
        ...

    def discard(self) -> None:
        """Instead of an update: wait for what is on its way, and forget it."""
        ...

    def apply_update(self) -> None:
        """Move every table once, when all ranks have agreed that all chunks have had their gradient. All ranks call
        it: it may be collective."""
        ...


class Transport(Protocol):
    """Tables of a plan, and the way to them."""

    shards: list[Shard]
    """That this rank holds, in the order of the tables."""

    def start_input_dist(self, bags: JaggedIds) -> InputDistHandle:
        """Bring ids on their way; the result is for `lookup`. Collective, and may go on behind the caller."""
        ...

    def lookup(self, sent: Any, terms: FusedUpdateParams) -> PooledShare:
        """Collective. Under `torch.no_grad` there is no update to come."""
        ...
