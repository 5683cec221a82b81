"""Reads what is known of a job: its rows, the last events of some names, and its place in the queue."""

import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from dlrm.record import (
    BATCH_ADVICE,
    CHECKPOINT_SAVED,
    DECIDED,
    LARGE_BATCH,
    LEARNS_NOTHING,
    PLAN,
    STEP_PARTS,
    BatchAdvice,
    Course,
    EvaluationSource,
    QualityWarning,
    find_yardsticks,
    list_quality_warnings,
)
from service.advice.facts import (
    CheckpointCost,
    CheckpointPace,
    CopyShortage,
    Decisions,
    Facts,
    LargeBatch,
    PlanDetails,
    StepParts,
    Waiting,
)
from service.advice.room_rules import count_needed_bytes
from service.advice.speed_rules import SLOW_PRECISION
from service.advice.start_now import Waiter, find_start_option
from service.capacity.known import KnownCapacities, KnownCapacity
from service.queue.place import estimate_run_seconds, explain_waits, find_place
from service.queue.repository import QueueRepository
from service.queue.state import QueueState
from service.reports.repository import ReportRepository
from service.store.demand import get_full_demand
from service.store.job_repository import JobRepository
from service.store.models import IS_SHORTLY_NAMED, Event, Job
from service.store.states import JobState
from service.times import now

CHECKPOINT_WAITS = "checkpoint_waits"
EVENT_NAMES = (
    *(BATCH_ADVICE, LARGE_BATCH, LEARNS_NOTHING, PLAN, STEP_PARTS, DECIDED, SLOW_PRECISION),
    CHECKPOINT_WAITS,
)
"""Names of events whose last one is read."""
NUM_CHECKPOINTS = 20
"""Number of last checkpoints whose cost is averaged."""
MAX_EVALUATIONS = 1000
"""Number of evaluations that a run makes at most."""

Details = TypeVar("Details", bound=BaseModel)


def read_facts(session: Session, job: Job, capacity: KnownCapacity) -> Facts:
    """Read the facts about `job`, a row of `session`."""
    document, events = JobRepository(session).get_document(job.id), _read_last_events(session, job.id)
    details = {name: event.details for name, event in events.items()}
    read_capacities = cache(capacity.read)
    evaluations, reports = _read_evaluations(session, job.id), ReportRepository(session)
    plan = _parse(PlanDetails, details.get(PLAN))
    of_launcher = read_capacities().get(job.launcher)
    return Facts(
        state=job.state,
        reason=job.reason,
        spec=document.spec,
        decided=_read_decided(details.get(DECIDED)),
        resolved=document.resolved["job"],
        demand=get_full_demand(job),
        progress=job.progress,
        deadline_used_seconds=_count_used_seconds(job),
        metrics=document.metrics,
        warnings=_list_warnings(job, document.spec, document.metrics),
        yardsticks=find_yardsticks(document.metrics),
        course=Course.from_metrics(document.metrics) or _make_course(evaluations, job.progress),
        constant_log_loss=evaluations[-1]["constant_log_loss"] if evaluations else None,
        aucs=[(row["auc"], row["auc_standard_error"]) for row in evaluations if row["auc"] is not None],
        last_step=reports.get_last_report(job.id, "step") or {},
        messages={name: event.message for name, event in events.items()},
        batch_advice=_parse(BatchAdvice, details.get(BATCH_ADVICE)),
        large_batch=_parse(LargeBatch, details.get(LARGE_BATCH)),
        plan=plan,
        step_parts=_parse(StepParts, details.get(STEP_PARTS)),
        checkpoints=_read_pace(session, job.id),
        copy_shortage=_parse(CopyShortage, details.get(CHECKPOINT_WAITS)),
        waiting=_read_wait(session, job, document.spec, plan, read_capacities()),
        total=None if of_launcher is None else of_launcher.total,
    )


def _count_used_seconds(job: Job) -> float | None:
    """Count the seconds of a job's deadline that have passed; None before they count, and without one."""
    if job.deadline_at is None or job.deadline_seconds is None:
        return None
    left_seconds = (job.deadline_at - (job.finished_at or now())).total_seconds()
    return job.deadline_seconds - left_seconds


def _read_last_events(session: Session, job_id: str) -> dict[str, Event]:
    """Return the last event of each name of EVENT_NAMES."""
    chosen = (Event.job_id == job_id, Event.name.in_(EVENT_NAMES), IS_SHORTLY_NAMED)
    last = select(func.max(Event.id)).where(*chosen).group_by(Event.name)
    found = session.scalars(select(Event).where(Event.job_id == job_id, Event.id.in_(last)))
    return {event.name: event for event in found if event.name is not None}


def _read_evaluations(session: Session, job_id: str) -> list[dict[str, Any]]:
    """Return the valid evaluations of all attempts, in order."""
    reports, rows = ReportRepository(session), list[dict[str, Any]]()
    for own in reports.list_ranges(job_id, "evaluation"):
        rows += reports.iterate("evaluation", job_id, own, 0, MAX_EVALUATIONS)
    return rows


def _read_decided(details: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the decided values of an event `decided`, by field."""
    decided = _parse(Decisions, details)
    return {} if decided is None else {decision.field: decision.value for decision in decided.decisions}


def _list_warnings(job: Job, spec: Mapping[str, Any], metrics: Mapping[str, float | None]) -> Sequence[QualityWarning]:
    if job.state != JobState.SUCCEEDED:
        return ()
    return list_quality_warnings(metrics, EvaluationSource.of_job(spec["data"]["format"], spec["data"]["eval"]))


def _make_course(evaluations: Sequence[Mapping[str, Any]], progress: Mapping[str, Any]) -> Course | None:
    """Return the course of a run that has not ended, from its evaluations; None without one."""
    is_held_out = bool(evaluations) and evaluations[-1]["validation_log_loss"] is not None
    name = "validation_log_loss" if is_held_out else "log_loss"
    losses = [(row[name], row["step"]) for row in evaluations if row[name] is not None]
    if not losses:
        return None
    best = min(range(len(losses)), key=lambda number: losses[number][0])
    return Course(
        last_step=losses[-1][1],
        num_planned_steps=progress.get("num_steps") or losses[-1][1],
        best_step=losses[best][1],
        best_log_loss=losses[best][0],
        last_log_loss=losses[-1][0],
        num_evaluations_since_best=len(losses) - 1 - best,
        rows="validation" if is_held_out else "evaluation",
    )


def _read_pace(session: Session, job_id: str) -> CheckpointPace | None:
    """Return the mean cost of the last checkpoints of the last attempt that has made some; None of fewer than two."""
    query = select(Event.attempt, Event.time, Event.details)
    query = query.where(Event.job_id == job_id, Event.name == CHECKPOINT_SAVED, IS_SHORTLY_NAMED)
    rows = session.execute(query.order_by(Event.id.desc()).limit(NUM_CHECKPOINTS)).all()
    costs = [
        (time, cost.stall_seconds)
        for attempt, time, details in rows
        if attempt == rows[0][0] and (cost := _parse(CheckpointCost, details)) is not None
    ]
    if len(costs) < 2:
        return None
    span = (costs[0][0] - costs[-1][0]).total_seconds()
    # The last one is written at the end, which may come soon after the one before.
    return CheckpointPace(len(costs), statistics.mean(stall for _, stall in costs), span / (len(costs) - 1))


def _read_wait(
    session: Session, job: Job, spec: Mapping[str, Any], plan: PlanDetails | None, capacities: KnownCapacities
) -> Waiting | None:
    """Return what a job in the queue waits for, and with what it would start now; None if it waits for no resources."""
    wait = explain_waits(session, [job], lambda: capacities).get(job.id)
    place = find_place(session, job, wait, lambda: capacities, visible_owner=job.owner)
    if place is None or wait is None:
        return None
    time = now()
    # The job is cancelled for the changed one, and so keeps no room for itself.
    state = QueueState.read(session, job.launcher, capacities.get(job.launcher), time, tried=frozenset({job.id}))
    waiter = Waiter(spec, job.owner, job.launcher, None if plan is None else count_needed_bytes(plan))
    return Waiting(
        lack=wait[1],
        expected_start_at=place.expected_start_at,
        wait_seconds=_count_minutes(place.expected_start_at, time),
        run_seconds=estimate_run_seconds(QueueRepository(session, job.launcher), job.owner, job.name),
        option=find_start_option(waiter, state),
        num_ahead=place.position - 1,
        holders=place.holders,
    )


def _count_minutes(start: datetime | None, time: datetime) -> float | None:
    """Count the seconds until `start` in whole minutes, so that an answer stays the same for one."""
    return None if start is None else max(0, round((start - time).total_seconds() / 60)) * 60.0


def _parse(kind: type[Details], details: object) -> Details | None:
    """Parse the details of an event; None if it is absent, or another trainer means something else."""
    try:
        return None if details is None else kind.model_validate(details)
    except ValidationError:
        return None
