"""The native operators for embedding tables on the CPU."""

from collections.abc import Sequence

import torch

from sharding.embedding.fused_optimizer import EPS, FusedUpdateParams, TableOptimizer
from sharding.embedding.int8_rows import make_rounding_key
from sharding.embedding.shard import Shard
from sharding.native import find_load_error, load_library


def is_built() -> bool:
    """Whether the operators can be used on this rank."""
    return load_library("tables")


def explain_missing() -> str:
    """Return why the operators cannot be used: on this rank, else on some other one."""
    return find_load_error("tables") or "they are not built on some rank"


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

    weights: as in `Shard`, rows [first_row, first_row + R) of a table. offsets: [m + 1] indices into `ids` where bags
    begin. accumulate: add to what `out` holds.
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
    """Update the rows of `shard` that the bags of all sources name, each once, by the sum of its gradients.

    first_row: first row of the shard in its table. ids, offsets, gradients: for each source its ids, the indices where
    its m bags begin in them, and the gradients [m, C] of the bags' pooled embeddings.
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
        **optimizer.count_rule.get_native_settings(params.scale),
        rounding_key=0
        if shard.weights.dtype != torch.uint8
        else make_rounding_key(params.seed, params.number, shard.spec),
    )


def apply_plain_sgd(
    weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, gradients: torch.Tensor, *, learning_rate: float
) -> None:
    """Make one step of gradient descent on a whole table [R, C], from the bags of one source."""
    nothing = torch.empty(0)
    torch.ops.dlrm_tables.update(weights, nothing, [ids], [offsets], [gradients], 0, "sgd", learning_rate, 0.0, 1.0)
