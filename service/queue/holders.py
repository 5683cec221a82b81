"""Jobs that hold what a waiting job waits for, as its reader may know of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from service.launchers.protocol import Capacity
from service.schemas import QueueHolder
from service.store.demand import get_full_demand
from service.store.models import Job

MAX_HOLDERS = 10
"""Largest number of entries: nobody reads a list of all jobs of a large cluster."""


@dataclass(frozen=True)
class Holding:
    """A job that holds resources, and when it gives them back."""

    job: Job
    ends_at: datetime | None
    """Time at which it is expected to end, to the minute; None if nothing is known."""

    @property
    def demand(self) -> Capacity:
        return get_full_demand(self.job).total


def list_holders(holding: Sequence[Holding], visible_owner: str | None) -> list[QueueHolder]:
    """List who holds resources, the largest first; all that are not listed by themselves are one last entry.

    visible_owner: only owner whose jobs the reader may know of; None if it may know of all.
    """
    seen = [each for each in holding if visible_owner in (None, each.job.owner)]
    seen.sort(key=lambda each: (-each.demand.num_cores, -each.demand.memory_bytes, each.job.id))
    listed = seen if len(seen) == len(holding) <= MAX_HOLDERS else seen[: MAX_HOLDERS - 1]
    listed_ids = {each.job.id for each in listed}
    others = [each.demand for each in holding if each.job.id not in listed_ids]
    holders = [
        QueueHolder(
            id=each.job.id,
            name=each.job.name,
            owner=each.job.owner,
            state=each.job.state,
            expected_end_at=each.ends_at,
            **vars(each.demand),
        )
        for each in listed
    ]
    if others:
        holders.append(QueueHolder(num_jobs=len(others), **vars(reduce(Capacity.plus, others))))
    return holders
