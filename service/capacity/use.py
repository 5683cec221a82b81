"""Use of the resources for jobs: who holds them now, and how much was held before."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Annotated

from sqlalchemy.orm import Session

from service import schemas
from service.access.principal import Principal
from service.capacity.history import WAITING, Amounts, Interval, choose_point_seconds, sum_intervals
from service.capacity.known import KnownCapacities, KnownCapacity
from service.capacity.repository import CapacityRepository, HeldAttempt, HistoryRepository
from service.database import Database
from service.parts import depend_on
from service.store.demand import get_full_demand
from service.store.models import Job
from service.store.quotas import NOTHING, QuotaRepository, Usage
from service.times import now

MAX_JOBS = 200
"""Number of jobs that are listed one by one."""
MAX_INTERVALS = 10_000
"""Number of rows of one kind that a history is computed from; if there are more, it begins later."""
MAX_KEPT_SECONDS = 60
"""Seconds for which a history is kept at most, however long the time is that one of its points stands for."""
MAX_KEPT = 20
"""Number of histories that are kept."""


class CapacityUseService:
    def __init__(self, database: Database, capacity: KnownCapacity) -> None:
        self._database = database
        self._capacity = capacity
        self._histories: dict[tuple[str, int], schemas.CapacityHistory] = {}
        """Histories by launcher and hours: they are the same for everybody."""
        self._lock = Lock()

    def describe(self, principal: Principal) -> schemas.CapacityUse:
        """Describe who holds what, as far as `principal` may know of the jobs."""
        capacities = self._capacity.read()
        visible = principal.visible_owner
        with self._database.read() as session:
            repository = CapacityRepository(session)
            jobs = [_describe_job(job) for job in repository.list_holding(visible, MAX_JOBS)]
            usages = QuotaRepository(session).sum_usages()
            queued = repository.count_queued(visible)
            nodes = _list_nodes(capacities, repository.list_nodes()) if _has_nodes(capacities) else []
        own = {owner: usage for owner, usage in usages.items() if principal.may_see(owner)}
        owners = [
            schemas.OwnerUse(owner=owner, num_queued=queued.get(owner, 0), **_dump(own.get(owner, NOTHING)))
            for owner in sorted({*own, *queued})
        ]
        others = _sum([usage for owner, usage in usages.items() if owner not in own])
        return schemas.CapacityUse(
            jobs=jobs, others=schemas.ResourceUse.model_validate(_dump(others)), owners=owners, nodes=nodes
        )

    def read_history(self, launcher: str, hours: int) -> schemas.CapacityHistory:
        """Return what the jobs of a launcher had in use during the last hours, and how many waited.

        It is up to a point, or `MAX_KEPT_SECONDS`, old.
        """
        with self._lock:
            kept = self._histories.get((launcher, hours))
            time = now()
            if kept is None or time - kept.until > timedelta(seconds=min(kept.seconds_per_point, MAX_KEPT_SECONDS)):
                kept = self._compute_history(launcher, hours, time)
                if len(self._histories) >= MAX_KEPT:
                    self._histories.clear()
                self._histories[launcher, hours] = kept
        return kept

    def _compute_history(self, launcher: str, hours: int, until: datetime) -> schemas.CapacityHistory:
        seconds = choose_point_seconds(hours)
        asked = until - timedelta(hours=hours)
        with self._database.read() as session:
            intervals, since = _list_intervals(session, launcher, asked)
        # From a multiple of the time of a point, so that a point has the same value in the next answer.
        start = since.timestamp() // seconds * seconds if since == asked else since.timestamp()
        points = sum_intervals(intervals, start, until.timestamp(), seconds)
        curves = [
            schemas.UseCurve(mean=[round(value, 3) for value in mean], max=largest)
            for mean, largest in zip(points.means, points.maxima, strict=True)
        ]
        names = ("num_cores", "memory_bytes", "num_gpus", "num_waiting")
        return schemas.CapacityHistory(
            launcher=launcher,
            since=datetime.fromtimestamp(start, UTC),
            until=until,
            seconds_per_point=seconds,
            **dict(zip(names, curves, strict=True)),
        )


CapacityUse = Annotated[CapacityUseService, depend_on(CapacityUseService)]
"""Parameter type of an endpoint that needs the service."""


def _list_intervals(session: Session, launcher: str, since: datetime) -> tuple[list[Interval], datetime]:
    """List what was held and what waited since a time.

    Returns the time from which on the list is complete, too: it is later if there are too many rows.
    """
    history = HistoryRepository(session, launcher)
    ended = history.list_ended(since, MAX_INTERVALS)
    never_started = history.list_never_started(since, MAX_INTERVALS)
    queued = history.list_queued(since, MAX_INTERVALS)
    lasts = [
        ended[-1].finished_at if len(ended) == MAX_INTERVALS else None,
        never_started[-1][1] if len(never_started) == MAX_INTERVALS else None,
        queued[-1][1] if len(queued) == MAX_INTERVALS else None,
    ]
    complete_since = max([since, *(last for last in lasts if last is not None)])
    num_before = history.count_queued_before(queued[-1][1] if lasts[2] is not None and queued else since)
    held = [*history.list_active(), *ended]
    intervals = [Interval(each.started_at.timestamp(), _to_seconds(each.finished_at), _hold(each)) for each in held]
    intervals += [
        Interval(each.created_at.timestamp(), each.started_at.timestamp(), WAITING)
        for each in held
        if each.number == 1 and each.started_at > since
    ]
    intervals += [Interval(created.timestamp(), _to_seconds(end), WAITING) for created, end in never_started]
    return intervals + _list_waits(held, dict(queued), num_before), complete_since


def _list_waits(held: Sequence[HeldAttempt], queued: Mapping[str, datetime], num_before: int) -> list[Interval]:
    """List since when jobs have waited that wait now: since they were submitted, or since their last attempt.

    held: attempts since some time. queued: submission by id of the jobs that were submitted since then. num_before:
    number of older ones; they have waited all the time, unless they have an attempt in `held`.
    """
    since: dict[str, datetime] = {}
    for each in held:
        if each.is_queued and each.finished_at is not None:
            since[each.job_id] = max(each.finished_at, since.get(each.job_id, each.finished_at))
    num_before -= len(since.keys() - queued.keys())
    starts = [time.timestamp() for time in (dict(queued) | since).values()]
    return [Interval(start, None, WAITING) for start in starts] + [
        Interval(0.0, None, (0, 0, 0, num_before)),
    ]


def _to_seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _hold(attempt: HeldAttempt) -> Amounts:
    return attempt.num_cores, attempt.memory_bytes, attempt.num_gpus, 0


def _sum(usages: Sequence[Usage]) -> Usage:
    total = NOTHING
    for usage in usages:
        total = Usage(total.capacity.plus(usage.capacity), total.num_running + usage.num_running)
    return total


def _dump(usage: Usage) -> dict[str, int]:
    return {"num_jobs": usage.num_running, **vars(usage.capacity)}


def _describe_job(job: Job) -> schemas.HoldingJob:
    held = get_full_demand(job).total
    names = ("id", "name", "owner", "state", "launcher", "num_nodes", "started_at", "progress")
    return schemas.HoldingJob.model_validate({name: getattr(job, name) for name in names} | vars(held))


def _has_nodes(capacities: KnownCapacities) -> bool:
    return any(capacity is not None and capacity.nodes for capacity in capacities.values())


def _list_nodes(capacities: KnownCapacities, held: Sequence[tuple[Job, str | None]]) -> list[schemas.NodeUse]:
    """List the machines that are known by name, with what jobs hold of each. held: jobs with their machines."""
    used: dict[tuple[str, str], list[int]] = {}
    for job, machines in held:
        names = (machines or "").split(", ")
        for name in names:
            sums = used.setdefault((job.launcher, name), [0, 0, 0])
            for index, amount in enumerate(vars(get_full_demand(job).total).values()):
                sums[index] += amount // len(names)
    nodes: list[schemas.NodeUse] = []
    for launcher, capacity in capacities.items():
        for node in capacity.nodes if capacity is not None else ():
            cores, memory, gpus = used.get((launcher, node.name), (0, 0, 0))
            amounts = {"num_cores_used": cores, "memory_bytes_used": memory, "num_gpus_used": gpus}
            nodes.append(schemas.NodeUse(launcher=launcher, name=node.name, **vars(node.capacity), **amounts))
    return nodes
