"""What all ranks must know before anything moves."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.ranks import Ranks


@dataclass(frozen=True)
class Agreement:
    """The same on every rank."""

    is_finite: bool
    """Loss and gradients of every rank are finite."""
    is_stop_requested: bool
    """Some rank was asked to stop."""
    loss_sum: float
    """Over the valid rows of the global batch; NaN where not finite."""


def agree(ranks: Ranks, *, is_finite: bool, is_stop_requested: bool, loss_sum: float) -> Agreement:
    """One tiny blocking all-reduce of three numbers."""
    said = torch.tensor(
        [0.0 if is_finite else 1.0, 1.0 if is_stop_requested else 0.0, loss_sum if is_finite else 0.0],
        dtype=torch.float64,
        device=ranks.device,
    )
    dist.all_reduce(said, group=ranks.dense_group)
    num_not_finite, num_stops, total = said.tolist()
    return Agreement(
        is_finite=num_not_finite == 0,
        is_stop_requested=num_stops > 0,
        loss_sum=total if num_not_finite == 0 else float("nan"),
    )


def said_by_first(ranks: Ranks, number: float) -> float:
    """Rank 0's `number`, on every rank."""
    said = torch.tensor([number], dtype=torch.float64, device=ranks.device)
    dist.broadcast(said, src=0, group=ranks.dense_group)
    return said.item()
