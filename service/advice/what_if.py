"""Plans of a job that has trained with other settings of its sharding, made in a child process and kept."""

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import structlog

from dlrm.config import ConfigError, ResolvedJob
from service.advice.changes import change_document
from service.advice.facts import Facts, PlanComparison, PlannedChange
from service.advice.speed_rules import MAX_IMBALANCE, get_parts
from service.http.problems import ProblemError
from service.plans.service import PlanService

MAX_PENDING = 8
"""Largest number of comparisons that are made or wait for their turn."""
MAX_KEPT = 256
"""Largest number of jobs whose comparisons are kept."""
AUTOMATIC: dict[str, Any] = {"sharding.plan": "auto", "sharding.tables": []}
BUSY = ":planning-busy"
"""End of the type of the refusal of a plan while others are made: it may be made later."""
SHORT_FORMAT = "fp16"
"""Format of half the bytes that rounds least."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class MeasuredJob:
    """Job whose steps were measured, as far as its plan is concerned."""

    id: str
    attempt: int
    """Number of its last attempt."""
    launcher: str
    resolved: Mapping[str, Any]
    """Fields of its `ResolvedJob`."""


class WhatIf:
    """Comparisons of plans, one for each job and attempt, made by a thread of their own one after the other."""

    def __init__(self, plans: PlanService) -> None:
        self._plans = plans
        self._kept: OrderedDict[tuple[str, int], Future[PlanComparison | None]] = OrderedDict()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def compare(self, job: MeasuredJob, facts: Facts) -> tuple[PlanComparison | None, bool]:
        """Return the comparison of a job's plan with others, and whether it is being made still; never waits for it.

        None if nothing is to be compared, the comparison is not finished, or it has failed. A failed one is forgotten
        once it was asked for, so that the next request begins another one.
        """
        if not _is_worth_it(facts):
            return None, False
        key = (job.id, job.attempt)
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                self._begin(job, facts)
                return None, True
            self._kept.move_to_end(key)
            if not found.done():
                return None, True
            if (error := found.exception()) is None:
                return found.result(), False
            del self._kept[key]
            return None, _is_busy(error)

    def _begin(self, job: MeasuredJob, facts: Facts) -> None:
        """Begin the comparison of a job, unless too many are being made."""
        if sum(not other.done() for other in self._kept.values()) >= MAX_PENDING:
            return
        made = self._kept[job.id, job.attempt] = Future[PlanComparison | None]()
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        threading.Thread(target=self._work, args=(job, facts, made), name="plans to compare", daemon=True).start()

    def _work(self, job: MeasuredJob, facts: Facts, made: "Future[PlanComparison | None]") -> None:
        try:
            with self._turn:
                resolved = ResolvedJob.model_validate_json(json.dumps(job.resolved))
                made.set_result(self._compare(facts, resolved, job.launcher))
        except Exception as error:
            if not _is_busy(error):
                log.warning("plans not compared", job_id=job.id, error=str(error))
            made.set_exception(error)

    def _compare(self, facts: Facts, resolved: ResolvedJob, launcher: str) -> PlanComparison | None:
        present = self._plans.plan_again(resolved, launcher)
        if present is None:
            return None
        types = _list_types(present)
        options: list[PlannedChange] = []
        for kind, changes in _list_changes(facts, present):
            changed = _change(facts, resolved, changes)
            plan = None if changed is None else self._plans.plan_again(changed, launcher)
            if plan is not None:
                moved = [(name, other) for name, other in _list_types(plan).items() if types.get(name) != other]
                options.append(PlannedChange(kind, changes, plan["step"]["seconds"], moved))
        step = present["step"]
        return PlanComparison(step["terms"], step["seconds"], present["imbalance"], options)


def _is_busy(error: BaseException) -> bool:
    """Whether the planner has only refused a plan while it made others."""
    return isinstance(error, ProblemError) and error.body["type"].endswith(BUSY)


def _is_worth_it(facts: Facts) -> bool:
    """Whether another plan may make the steps faster that were measured."""
    plan = facts.plan
    if plan is None or facts.world_size < 2 or get_parts(facts) is None:
        return False
    return any(plan.exchange_bytes.values()) or plan.imbalance_of_seconds > MAX_IMBALANCE


def _list_changes(facts: Facts, plan: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """List the changes whose plans are made, each with its kind."""
    changes: list[tuple[str, dict[str, Any]]] = []
    if facts.get("sharding.plan") != "auto" or facts.get("sharding.tables"):
        changes.append(("automatic_plan", dict(AUTOMATIC)))
    elif plan["imbalance"] > MAX_IMBALANCE and (table := _find_heaviest(plan)) is not None:
        changes.append(("split_table", {"sharding.tables": [{"pattern": table, "type": "row_wise"}]}))
    if facts.get("sharding.exchange_dtype") == "fp32" and plan["exchange_bytes"]["forward"]:
        changes.append(("exchange_dtype", {"sharding.exchange_dtype": SHORT_FORMAT}))
    return changes


def _find_heaviest(plan: Mapping[str, Any]) -> str | None:
    """Find the table on the slowest rank that has most numbers to look up of each sample; None if all are split."""
    slowest = plan["step"]["rank"]
    whole = [table for table in plan["tables"] if table["type"] == "table_wise" and table["ranks"] == [slowest]]
    found = max(
        whole, key=lambda table: (table["ids_per_sample"] * table["embedding_dim"], table["num_rows"]), default=None
    )
    return None if found is None else found["name"]


def _list_types(plan: Mapping[str, Any]) -> dict[str, str]:
    return {table["name"]: table["type"] for table in plan["tables"]}


def _change(facts: Facts, resolved: ResolvedJob, changes: Mapping[str, Any]) -> ResolvedJob | None:
    """Return a resolved job with other settings of its sharding; None if they are invalid."""
    try:
        sharding = change_document(facts.spec, changes).sharding
    except ConfigError:
        return None
    update = {"sharding": sharding}
    asked = None if resolved.asked is None else resolved.asked.model_copy(update=update)
    return resolved.model_copy(update={"job": resolved.job.model_copy(update=update), "asked": asked})
