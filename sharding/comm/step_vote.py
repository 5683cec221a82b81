"""The vote of all ranks that ends the forward and backward pass of a step, before anything is updated."""

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
    """Loss summed over the valid rows of the global batch; NaN where it is not finite on some rank."""


def all_reduce_votes(ranks: Ranks, vote: StepVote, *, is_finite: bool = True, loss_sum: float = 0.0) -> StepDecision:
    """Combine the votes of all ranks in one blocking all-reduce of four numbers. Collective.

    is_finite: whether loss and gradients of this rank are. loss_sum: over the valid rows of this rank.
    """
    # Counts of ranks against, so that a sum of 0 means that none is.
    counts = torch.tensor(
        [not is_finite, vote.is_stop_requested, not vote.is_ready_to_save, loss_sum if is_finite else 0.0],
        dtype=torch.float64,
        device=ranks.device,
    )
    dist.all_reduce(counts, group=ranks.dense_group)
    num_not_finite, num_stops, num_not_ready, total = counts.tolist()
    return StepDecision(
        is_finite=num_not_finite == 0,
        is_stop_requested=num_stops > 0,
        is_save_due=num_not_ready == 0,
        loss_sum=total if num_not_finite == 0 else float("nan"),
    )
