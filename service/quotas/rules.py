"""Rules of quotas: which jobs exceed that of their owner, and by what."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, and_, or_

from dlrm.config import format_count
from hostinfo.sizes import format_giga, format_giga_limit, guess_size_base
from service.jobs.models import Job
from service.launchers.protocol import Capacity
from service.quotas.models import Quota
from service.quotas.repository import EVERYBODY, Usage

NOTHING = Usage(Capacity(0, 0, 0), 0)


def find_quota(quotas: Mapping[str, Quota], owner: str) -> Quota | None:
    """Return the quota of an owner, or else that of everybody; None if there is neither."""
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
    if quota.num_cores is not None and used.num_cores + demand.num_cores > quota.num_cores:
        needed = format_count(demand.num_cores, "core")
        return f"needs {needed}, and {owner} occupies {used.num_cores} of {quota.num_cores}"
    if quota.memory_bytes is not None and used.memory_bytes + demand.memory_bytes > quota.memory_bytes:
        base = guess_size_base(demand.memory_bytes)
        sizes = (demand.memory_bytes, used.memory_bytes, quota.memory_bytes)
        needed, occupied, limit = (format_giga(size, base) for size in sizes)
        return f"needs {needed}, and {owner} occupies {occupied} of {limit}"
    if quota.num_gpus is not None and used.num_gpus + demand.num_gpus > quota.num_gpus:
        needed = format_count(demand.num_gpus, "GPU")
        return f"needs {needed}, and {owner} occupies {used.num_gpus} of {quota.num_gpus}"
    return None


def list_excesses(demand: Capacity, quota: Quota) -> list[tuple[str, str]]:
    """List what a job needs more of than its owner's quota has, each as a sentence and what would be valid."""
    excesses: list[tuple[str, str]] = []
    if quota.num_running == 0:
        excesses.append(("no job of this owner may run", "a larger quota"))
    if quota.num_cores is not None and demand.num_cores > quota.num_cores:
        excesses.append(_describe_excess(demand.num_cores, quota.num_cores, "core"))
    if quota.memory_bytes is not None and demand.memory_bytes > quota.memory_bytes:
        base = guess_size_base(demand.memory_bytes)
        asked, limit = format_giga(demand.memory_bytes, base), format_giga_limit(quota.memory_bytes, base)
        excesses.append((f"asks for {asked}", f"at most {limit}"))
    if quota.num_gpus is not None and demand.num_gpus > quota.num_gpus:
        excesses.append(_describe_excess(demand.num_gpus, quota.num_gpus, "GPU"))
    return excesses


def _describe_excess(asked: int, limit: int, noun: str) -> tuple[str, str]:
    return f"asks for {format_count(asked, noun)}", f"at most {format_count(limit, noun)}"


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
    limits = (
        (Job.num_cores * Job.num_nodes, quota.num_cores, usage.capacity.num_cores),
        (Job.memory_bytes * Job.num_nodes, quota.memory_bytes, usage.capacity.memory_bytes),
        (Job.num_gpus * Job.num_nodes, quota.num_gpus, usage.capacity.num_gpus),
    )
    exceeded = [column > limit - used for column, limit, used in limits if limit is not None]
    return and_(is_owned, or_(*exceeded)) if exceeded else None
