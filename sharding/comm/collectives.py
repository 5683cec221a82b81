"""Collectives that torch.distributed lacks: of Python objects, and sums over ranks on the clock of exchanges."""

from collections.abc import Callable
from typing import TypeVar, cast

import torch
import torch.distributed as dist

from sharding.comm.exchange_clock import ExchangeKind, Waitable, count_all_reduced_bytes
from sharding.comm.process_groups import Ranks

T = TypeVar("T")


def broadcast_from_rank0(ranks: Ranks, value: T) -> T:
    """Return rank 0's `value` on every rank. Collective; called by the thread that trains."""
    received = [value]
    dist.broadcast_object_list(received, src=0, group=ranks.dense_group, device=ranks.device)
    return received[0]


def start_all_reduce(ranks: Ranks, summed: torch.Tensor, kind: ExchangeKind) -> Waitable:
    """Start to sum a tensor over ranks in place, in the group of the dense gradients. Collective."""
    work = dist.all_reduce(summed, group=ranks.dense_group, async_op=True)
    assert work is not None, "an asynchronous collective returns its work"
    return ranks.exchange_clock.track(kind, work, count_all_reduced_bytes(summed, ranks.world_size))


def all_gather_object(group: dist.ProcessGroup, value: T) -> list[T]:
    """Return every rank's `value`, by rank, on every rank. Collective.

    group: over gloo, used by one thread at a time.
    """
    gathered: list[T] = [value] * group.size()
    dist.all_gather_object(gathered, value, group=group)
    return gathered


def run_on_all_ranks(
    group: dist.ProcessGroup, work: Callable[[], T], errors: type[Exception] | tuple[type[Exception], ...]
) -> list[T]:
    """Call `work` on every rank, and return what each call returned, by rank, on every rank. Collective.

    errors: exceptions of `work` that end it on all ranks: the one of the lowest rank is raised on every rank, so that
    no rank waits for one that has failed. group: as for `all_gather_object`.
    """
    answer: T | Exception
    try:
        answer = work()
    except errors as error:
        answer = error
    answers = all_gather_object(group, answer)
    for gathered in answers:
        if isinstance(gathered, errors):
            raise gathered
    return cast("list[T]", answers)
