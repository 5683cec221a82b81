"""The vote of all ranks that ends the forward and backward pass of a step, before anything is updated."""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks


@dataclass(frozen=True)
class StepVote:
    """The vote of one rank on what follows a step."""

    is_stop_requested: bool = False
    """Whether this rank was asked to stop. One such vote stops all ranks."""
    is_ready_to_save: bool = False
    """Whether a checkpoint is due and this rank can begin one. A checkpoint needs this vote from every rank."""


DEFAULT_VOTE = StepVote()
"""Vote of a rank that wants neither a stop nor a checkpoint."""


@dataclass(frozen=True)
class StepDecision:
    """The result of a vote, the same on every rank."""

    is_finite: bool
    """Whether loss and gradients are finite on every rank."""
    is_stop_requested: bool
    """Whether some rank was asked to stop."""
    is_save_due: bool
    """Whether every rank is ready to save."""
    loss_sum: float
    """Loss summed over the valid rows of the global batch; NaN if it is not finite on some rank."""


def all_reduce_votes(ranks: Ranks, vote: StepVote, loss_sum: torch.Tensor | None = None) -> StepDecision:
    """Combine the votes of all ranks in one blocking all-reduce of three numbers. Collective.

    loss_sum: float64 scalar on the device of `ranks`, over the valid rows of this rank; not finite where a gradient of
    this rank is not.

    The host waits for the device once, for the sum of all ranks; a rank without others reads its own. That one wait
    costs little: the ids of the next batch travel already, and an update is few launches. The numbers that the host
    contributes go to the device as arguments of kernels, because a copy from pageable memory would be another wait.
    """
    votes = torch.zeros(3, dtype=torch.float64, device=ranks.device)
    if loss_sum is not None:
        votes[0].copy_(loss_sum)
    # Numbers of ranks that want a stop, and that cannot save: one of them is enough.
    votes[1].fill_(vote.is_stop_requested)
    votes[2].fill_(not vote.is_ready_to_save)
    if ranks.world_size > 1:
        dist.all_reduce(votes, group=ranks.dense_group)
    # What is not finite on one rank is not finite in the sum.
    total, num_stops, num_not_ready = votes.tolist()
    is_finite = math.isfinite(total)
    return StepDecision(
        is_finite=is_finite,
        is_stop_requested=num_stops > 0,
        is_save_due=num_not_ready == 0,
        loss_sum=total if is_finite else float("nan"),
    )
