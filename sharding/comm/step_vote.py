"""What all ranks must know before anything moves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks

T = TypeVar("Said")


@dataclass(frozen=True)
class StepDecision:
    """The same on every rank."""

    is_finite: bool
    """Loss and gradients of every rank are finite."""
    is_stop_requested: bool
    """Some rank was asked to stop."""
    is_save_due: bool
    """Every rank is ready to save."""
    loss_sum: float
    """Over the valid rows of the global batch; NaN where not finite."""


@dataclass(frozen=True)
class StepVote:
    """What one rank would have happen after a step."""

    is_stop_requested: bool = False
    """It stops: on all ranks, if any of them was asked to."""
    is_ready_to_save: bool = False
    """A checkpoint is due, and this rank can begin one: on all ranks, if each of them can."""


DEFAULT_VOTE = StepVote()


def all_reduce_votes(ranks: Ranks, wishes: StepVote, *, is_finite: bool = True, loss_sum: float = 0.0) -> StepDecision:
    """One tiny blocking all-reduce of four numbers."""
    said = torch.tensor(
        [not is_finite, wishes.is_stop_requested, not wishes.is_ready_to_save, loss_sum if is_finite else 0.0],
        dtype=torch.float64,
        device=ranks.device,
    )
    dist.all_reduce(said, group=ranks.dense_group)
    num_not_finite, num_stops, num_not_ready, total = said.tolist()
    return StepDecision(
        is_finite=num_not_finite == 0,
        is_stop_requested=num_stops > 0,
        is_save_due=num_not_ready == 0,
        loss_sum=total if num_not_finite == 0 else float("nan"),
    )


def broadcast_from_rank0(ranks: Ranks, said: T) -> T:
    """Rank 0's `said`, on every rank; of the training's own thread."""
    told = [said]
    dist.broadcast_object_list(told, src=0, group=ranks.dense_group, device=ranks.device)
    return told[0]


def all_gather_object(group: dist.ProcessGroup, said: T) -> list[T]:
    """What every rank says, by rank, on every rank. group: over gloo, used by one thread at a time."""
    told: list[T] = [said] * group.size()
    dist.all_gather_object(told, said, group=group)
    return told


def run_on_all_ranks(
    group: dist.ProcessGroup, work: Callable[[], T], errors: type[Exception] | tuple[type[Exception], ...]
) -> list[T]:
    """What `work` answers on every rank, by rank, on every rank. Collective, as `told_by_all`.

    errors: where it raises one of them on some ranks, the first one is raised on all, and nobody waits for ever.
    """
    answer: T | Exception
    try:
        answer = work()
    except errors as error:
        answer = error
    answers = all_gather_object(group, answer)
    for told in answers:
        if isinstance(told, errors):
            raise told
    return cast("list[Said]", answers)
