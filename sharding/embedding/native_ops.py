"""The own operators of embedding tables on the CPU."""

from collections.abc import Sequence

import torch

from sharding.embedding.fused_optimizer import EPS, TableOptimizer
from sharding.embedding.shard import Shard
from sharding.embedding.transport import FusedUpdateParams
from sharding.native import load_library, why_not


def is_built() -> bool:
    """Whether the operators are there."""
    return load_library("tables")


def why_not_built() -> str:
    """Say in a sentence why the operators are not there, on this rank or another one."""
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
    """Write for each of m bags the sum of its rows into `out` [m, C]; rows that `weights` does not hold count as 0.

    weights: [R, C], rows [first_row, first_row + R) of a table. offsets: [m + 1] places in `ids` where bags begin.
    accumulate: add to what `out` holds.
    """
    torch.ops.dlrm_tables.pool(weights, ids, offsets, first_row, out, accumulate)


def apply_update(
    shard: Shard,
    first_row: int,
    ids: Sequence[torch.Tensor],
    offsets: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    optimizer: TableOptimizer,
    params: FusedUpdateParams,
) -> None:
    """Make one step of the rows of `shard` that the bags of all sources name.

    first_row: of the shard in its table. ids, offsets, gradients: of each source its ids, where its m bags begin in
    them, and the gradients [m, C] of the bags' pooled embeddings. A row that several bags name moves once, by the sum.
    """
    torch.ops.dlrm_tables.update(
        shard.weights,
        shard.state,
        ids,
        offsets,
        gradients,
        first_row,
        optimizer.name,
        params.learning_rate,
        EPS,
        params.gradient_multiplier,
    )


def apply_plain_sgd(
    weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, gradients: torch.Tensor, *, learning_rate: float
) -> None:
    """Make one step of gradient descent of a whole table [R, C], from the bags of one source."""
    nothing = torch.empty(0)
    torch.ops.dlrm_tables.update(weights, nothing, [ids], [offsets], [gradients], 0, "sgd", learning_rate, 0.0, 1.0)
