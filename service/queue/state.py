"""State of the queue at one time: what is free, who is first, and whether room is reserved."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.launchers.protocol import UNLIMITED, Capacity, Demand, LauncherCapacity
from service.queue.repository import QueueRepository
from service.reasons import Reason
from service.store.demand import find_first_lack, find_misfit, get_full_demand
from service.store.job_repository import JobRepository
from service.store.models import Job, Quota
from service.store.quotas import NOTHING, QuotaRepository, Usage, find_quota, find_quota_lack, list_full

RESERVED_AFTER = timedelta(minutes=10)
"""Time for which smaller jobs pass the first one of the queue. Then its room is reserved."""


@dataclass(frozen=True)
class QueueState:
    """Facts that decide whether a waiting job may start."""

    time: datetime
    free: Capacity
    """Resources that no job holds."""
    quotas: Mapping[str, Quota]
    usages: Mapping[str, Usage]
    """Resources that each owner's jobs hold."""
    head: Job | None
    """First job that may start by its owner's quota and that the machines have room for; None if none waits."""
    capacity: LauncherCapacity | None = None
    """All that jobs may occupy; None if that is not known."""

    @classmethod
    def read(
        cls,
        session: Session,
        launcher: str,
        capacity: LauncherCapacity | None,
        at: datetime,
        tried: frozenset[str] = frozenset(),
    ) -> "QueueState":
        """Read the state of the queue of one launcher.

        capacity: all that its jobs may occupy; None if that is not known. tried: ids of jobs to leave out.
        """
        queue = QueueRepository(session, launcher)
        reserved = JobRepository(session).sum_reserved_capacity(launcher)
        quotas = QuotaRepository(session).list_by_owner()
        # Without quotas it does not matter who holds what.
        usages = QuotaRepository(session).sum_usages() if quotas else {}
        head = queue.find_first(at, capacity=capacity, room=None, full=list_full(quotas, usages), tried=tried)
        return cls(at, capacity.total.minus(reserved) if capacity else UNLIMITED, quotas, usages, head, capacity)

    @property
    def is_reserved(self) -> bool:
        """Whether the first job has waited so long that no other job may take what it needs."""
        since = self.head.at_head_since if self.head else None
        return since is not None and self.time - since >= RESERVED_AFTER

    @property
    def room_of_others(self) -> Capacity:
        """Resources that jobs behind the first one may take while it waits."""
        return self.free.minus(get_full_demand(self.head).least) if self.head and self.is_reserved else self.free

    def find_wait(self, owner: str, full_demand: Demand, job_id: str | None = None) -> tuple[Reason, str] | None:
        """Return what a waiting job lacks, as a reason and a sentence; None if it is about to start.

        A job that is held, or that waits for its restart, lacks something else. job_id: None for a job that has not
        been submitted.
        """
        if (misfit := find_misfit(full_demand, self.capacity)) is not None:
            return Reason.UNSCHEDULABLE, f"{misfit}; it waits for larger machines, or more of them"
        quota, usage = find_quota(self.quotas, owner), self.usages.get(owner, NOTHING)
        if (quota_lack := find_quota_lack(owner, full_demand.total, quota, usage)) is not None:
            return Reason.QUOTA_EXCEEDED, quota_lack
        demand = full_demand.least
        lack = find_first_lack(demand, self.free)
        if lack is not None or self.head is None or job_id == self.head.id:
            return lack
        if self.free.has_room_for(get_full_demand(self.head).least) or self.room_of_others.has_room_for(demand):
            return None
        # Nobody learns the ids of other owners' jobs.
        head = self.head.id if self.head.owner == owner else "a job of another owner"
        return Reason.BEHIND_RESERVATION, f"the free room is reserved for {head}, which has waited longest"
