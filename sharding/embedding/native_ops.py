"""The own operators of tables on the CPU, in the words of shards."""

from collections.abc import Sequence

import torch

from sharding.embedding.fused_optimizer import EPS, TableOptimizer
from sharding.embedding.shard import Shard
from sharding.embedding.transport import FusedUpdateParams
from sharding.native import load_library, why_not


def is_built() -> bool:
    """Whether they are there."""
    return load_library("tables")


def why_not_built() -> str:
    return why_not("tables") or "on some rank they are not built"


def pool(
    weights: torch.Tensor,
    ids: torch.Tensor,
    offsets: torch.Tensor,
    first_row: int,
    out: torch.Tensor,
    *,
    accumulate: bool = False,
) -> None:
    """Write the sum of each bag's rows that lie in `weights` [R, C], those from `first_row` on, into `out` [m, C].

    offsets: [m + 1] places in `ids`. accumulate: add to what is there.
    """
    torch.ops.dlrm_tables.pool(weights, ids, offsets, first_row, out, accumulate)


def apply_update(
    shard: Shard,
    first_row: int,
    ids: Sequence[torch.Tensor],
    offsets: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    optimizer: TableOptimizer,
    terms: FusedUpdateParams,
) -> None:
    """One step of the rows of `shard` that the bags of all sources name; its own first row is `first_row`.

    For each source its ids, the places of its bags in them, and the gradients [m, C] of what was pooled of them.
    """
    torch.ops.dlrm_tables.update(
        shard.weights,
        shard.state,
        ids,
        offsets,
        gradients,
        first_row,
        optimizer.name,
        terms.learning_rate,
        EPS,
        terms.gradient_multiplier,
    )


def apply_plain_sgd(
    weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, gradients: torch.Tensor, *, rate: float
) -> None:
    """Plain gradient descent of a whole table [R, C], from one source."""
    nothing = torch.empty(0)
    torch.ops.dlrm_tables.update(weights, nothing, [ids], [offsets], [gradients], 0, "sgd", rate, 0.0, 1.0)
