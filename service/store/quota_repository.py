"""SQL statements on quotas, and on what they limit."""

from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from service.launchers.protocol import Capacity
from service.store.job_repository import HELD
from service.store.models import Job, Quota
from service.store.states import HOLDING, JobState

EVERYBODY = "*"
"""Owner of the quota of all owners that have none of their own."""


@dataclass(frozen=True)
class Usage:
    """Resources that the jobs of one owner hold."""

    capacity: Capacity
    num_running: int


class QuotaRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def list_all(self) -> list[Quota]:
        return list(self._session.scalars(select(Quota).order_by(Quota.owner)))

    def list_by_owner(self) -> dict[str, Quota]:
        return {quota.owner: quota for quota in self.list_all()}

    def put(self, quota: Quota) -> None:
        """Add a quota, or replace the same owner's."""
        self._session.merge(quota)

    def remove(self, owner: str) -> bool:
        """Remove the quota of an owner. Return whether there was one."""
        removed = self._session.execute(delete(Quota).where(Quota.owner == owner).returning(Quota.owner))
        return removed.scalar_one_or_none() is not None

    def lock(self, quota: Quota) -> None:
        """Let other submissions under this quota wait until this transaction ends, so that each counts the others."""
        self._session.execute(select(Quota.owner).where(Quota.owner == quota.owner).with_for_update())

    def count_queued(self, owner: str) -> int:
        """Count the waiting jobs of an owner."""
        query = select(func.count()).where(Job.owner == owner, Job.state == JobState.QUEUED)
        return self._session.scalar(query) or 0

    def sum_usages(self) -> dict[str, Usage]:
        """Sum up what the jobs of each owner hold."""
        query = select(Job.owner, func.count(), *HELD).where(Job.state.in_(HOLDING)).group_by(Job.owner)
        rows = self._session.execute(query)
        return {owner: Usage(Capacity(*map(int, amounts)), number) for owner, number, *amounts in rows}
