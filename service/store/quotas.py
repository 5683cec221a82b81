"""Quotas: SQL statements on them, what they limit, and which jobs exceed their owner's."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, delete, func, or_, select
from sqlalchemy.orm import Session

from dlrm.config import FieldError, format_count
from service.launchers.protocol import Capacity
from service.store.demand import RESOURCES
from service.store.job_repository import HELD
from service.store.models import IS_WATCHED, Job, Quota
from service.store.states import HOLDING, JobState

EVERYBODY = "*"
"""Name that stands for all owners; its quota is for those that have none of their own."""
OWNER_PATTERN = r"^(\*|[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)$"
"""Pattern of the name of an owner, or of all."""


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
        query = select(Job.owner, func.count(), *HELD).where(IS_WATCHED, Job.state.in_(HOLDING)).group_by(Job.owner)
        rows = self._session.execute(query)
        return {owner: Usage(Capacity(*map(int, amounts)), number) for owner, number, *amounts in rows}


NOTHING = Usage(Capacity(0, 0, 0), 0)


def find_quota(quotas: Mapping[str, Quota], owner: str) -> Quota | None:
    """Return the quota of an owner, or else everybody's; None if there is neither."""
    return quotas.get(owner) or quotas.get(EVERYBODY)


def find_quota_lack(owner: str, demand: Capacity, quota: Quota | None, usage: Usage) -> str | None:
    """Return in one sentence what of its owner's quota a job lacks; None if it may start.

    usage: what other jobs of the owner occupy.
    """
    if quota is None:
        return None
    used = usage.capacity
    if quota.num_running is not None and usage.num_running >= quota.num_running:
        return f"{owner} may run {format_count(quota.num_running, 'job')} at once, and runs {usage.num_running}"
    for resource in RESOURCES:
        limit: int | None = getattr(quota, resource.name)
        asked, occupied = resource.get(demand), resource.get(used)
        if limit is not None and occupied + asked > limit:
            needed, held, most = resource.format(asked, occupied, limit)
            return f"needs {needed}, and {owner} occupies {held} of {most}"
    return None


def list_excesses(demand: Capacity, quota: Quota | None) -> list[FieldError]:
    """List what a job needs more of than its owner's quota has; empty if there is no quota."""
    excesses: list[FieldError] = []
    if quota is None:
        return excesses
    if quota.num_running == 0:
        excesses.append(FieldError("resources", "no job of this owner may run", "a larger quota"))
    for resource in RESOURCES:
        limit: int | None = getattr(quota, resource.name)
        asked = resource.get(demand)
        if limit is not None and asked > limit:
            message, valid = f"asks for {resource.format(asked)[0]}", f"at most {resource.format_limit(limit, asked)}"
            excesses.append(FieldError("resources", message, valid))
    return excesses


def list_full(quotas: Mapping[str, Quota], usages: Mapping[str, Usage]) -> list[ColumnElement[bool]]:
    """List conditions on the jobs that may not start, since their owner's quota would be exceeded.

    A job of a range of machines counts with all that it may get.
    """
    owners = (set(quotas) | set(usages)) - {EVERYBODY}
    conditions = [_exceeds(quotas, usages, owner, Job.owner == owner) for owner in owners]
    if EVERYBODY in quotas:
        # Owners without a quota of their own whose jobs occupy nothing.
        conditions.append(_exceeds(quotas, {}, EVERYBODY, Job.owner.not_in(owners)))
    return [condition for condition in conditions if condition is not None]


def _exceeds(
    quotas: Mapping[str, Quota], usages: Mapping[str, Usage], owner: str, is_owned: ColumnElement[bool]
) -> ColumnElement[bool] | None:
    quota = find_quota(quotas, owner)
    if quota is None:
        return None
    usage = usages.get(owner, NOTHING)
    if quota.num_running is not None and usage.num_running >= quota.num_running:
        return is_owned
    limits = {resource: getattr(quota, resource.name) for resource in RESOURCES}
    exceeded: list[ColumnElement[bool]] = [
        getattr(Job, resource.name) * Job.num_nodes > limit - resource.get(usage.capacity)
        for resource, limit in limits.items()
        if limit is not None
    ]
    return and_(is_owned, or_(*exceeded)) if exceeded else None
