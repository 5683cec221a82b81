"""Preview of a job: its plan, memory and learning rates, and whether it fits this machine."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from dlrm.config import (
    ConfigError,
    DenseOptimizerConfig,
    FieldError,
    JobConfig,
    JobSpec,
    ResolvedJob,
    TableOptimizerConfig,
    compute_peak_rate,
)
from service.access.data_roots import DataAccess
from service.access.principal import Principal
from service.capacity.known import KnownCapacity
from service.database import Database
from service.http.problems import FieldProblem
from service.jobs.document import (
    choose_machines,
    parse_document,
    resolve_for_launcher,
    resolve_job_paths,
    resolve_launcher,
)
from service.jobs.warm_start import WarmStarts
from service.launchers.registry import Launchers
from service.parts import depend_on
from service.plans.plan_process import Planner
from service.plans.schemas import Fit, Memory, PlanView, RatePoint
from service.queue.state import QueueState
from service.reasons import Reason
from service.schemas import DerivedNumber
from service.settings import Settings
from service.store.demand import compute_demand, list_faults
from service.store.quotas import find_quota, list_excesses
from service.store.run_facts import RunFacts
from service.times import now

PLANNED_FIELDS = frozenset(PlanView.model_fields) - {
    "document",
    "decisions",
    "derived",
    "memory",
    "learning_rates",
    "fits",
}
"""Fields of an answer that the planner's result has under the same names; null if nothing was planned."""
NUM_POINTS = 100


class PlanService:
    def __init__(
        self,
        database: Database,
        settings: Settings,
        launchers: Launchers,
        access: DataAccess,
        capacity: KnownCapacity,
        facts: RunFacts,
    ) -> None:
        self._database = database
        self._access = access
        self._warm_starts = WarmStarts(database, access, settings.private_directories, facts, launchers)
        self._settings = settings
        self._launchers = launchers
        self._capacity = capacity
        self._planner = Planner(settings.trainer_python, settings.worker_environment)

    def plan(self, document: Mapping[str, Any], principal: Principal) -> PlanView:
        """Plan the job of a document without storing it, as if `principal` submitted it.

        Raises ConfigError if the document itself is invalid, and ProblemError if the planner fails or is busy.
        """
        spec = parse_document(document)
        launcher = resolve_launcher(spec, self._launchers)
        chosen = choose_machines(spec, launcher)
        resolved, faults = self._resolve(chosen, launcher, principal)
        result: dict[str, Any] = {"resolved": None} | dict.fromkeys(PLANNED_FIELDS)
        # A plan would reveal what a packed directory holds, which must not happen where its path is not allowed.
        if not (faults and spec.data.format == "packed"):
            result |= self._planner.make_plan(resolved, sees_files=self._launchers[launcher].shares_files)
            if result["resolved"] is not None:
                resolved = ResolvedJob.model_validate_json(json.dumps(result["resolved"]))
        plan, refusal = result["plan"], result["refusal"]
        if refusal is not None:
            valid = "; ".join(refusal["valid"])
            faults = [*faults, FieldError(refusal["field"] or "sharding", refusal["message"], valid)]
        return PlanView(
            document=spec.model_dump(mode="json"),
            decisions=resolved.decisions,
            derived=[DerivedNumber.model_validate(number) for number in resolved.derived],
            **{name: result[name] for name in PLANNED_FIELDS},
            memory=Memory(
                asked_bytes=plan["memory_bytes"] if plan else spec.resources.memory,
                planned_bytes=plan["largest_bytes"] if plan else None,
            ),
            learning_rates=compute_learning_rates(resolved.job),
            fits=self._check_fit(chosen, launcher, faults, principal.owner),
        )

    def plan_again(self, resolved: ResolvedJob, launcher: str) -> dict[str, Any] | None:
        """Return the report of the plan of a job that was submitted; None if there is none.

        Raises ProblemError if the planner fails or is busy.
        """
        return self._planner.make_plan(resolved, sees_files=self._launchers[launcher].shares_files)["plan"]

    def _resolve(self, spec: JobSpec, launcher: str, principal: Principal) -> tuple[ResolvedJob, list[FieldError]]:
        """Resolve a job as `POST /v1/jobs` does, and return the errors for which its paths would be refused.

        If there are errors, the job is resolved without looking for any file, and without the model that it starts
        from.
        """
        own, roots = self._launchers[launcher], self._access.list_roots(launcher, principal)
        try:
            absolute = resolve_job_paths(spec, own, roots, self._settings.private_directories)
            absolute = self._warm_starts.resolve(absolute, principal, launcher)
        except ConfigError as error:
            without_model = spec.model_copy(update={"run": spec.run.model_copy(update={"warm_start": None})})
            return resolve_for_launcher(without_model, own, roots, uses_prepared=False), list(error.errors)
        return resolve_for_launcher(absolute, own, roots), []

    def _check_fit(self, spec: JobSpec, launcher: str, faults: list[FieldError], owner: str) -> Fit:
        capacity, demand = self._capacity.read().get(launcher), compute_demand(spec)
        with self._database.read() as session:
            state = QueueState.read(session, launcher, capacity, now())
            beyond_quota = list_excesses(demand.total, find_quota(state.quotas, owner))
            wait = state.find_wait(owner, demand)
        if never := [*faults, *list_faults(spec, launcher, capacity), *beyond_quota]:
            why = [FieldProblem(**fault.as_dict()) for fault in never]
            return Fit(now=False, ever=False, reason=Reason.CANNOT_FIT, why=why)
        if wait is None:
            return Fit(now=True, ever=True, reason=None, why=[])
        why = [FieldProblem(field="resources", message=wait[1], valid="")]
        return Fit(now=False, ever=True, reason=wait[0], why=why)


Plans = Annotated[PlanService, depend_on(PlanService)]
"""Parameter type of an endpoint that needs the service."""


def compute_learning_rates(job: JobConfig) -> list[RatePoint]:
    """Compute the learning rates at NUM_POINTS points that are evenly spaced over the run."""
    points: list[RatePoint] = []
    for step in range(NUM_POINTS):
        size = job.batch.find_size(step / NUM_POINTS)
        start, end, first_size = job.batch.find_part(step / NUM_POINTS)
        num_points, point = (end - start) * NUM_POINTS, step - start * NUM_POINTS
        dense, table = (
            _compute_rate(optimizer, point, num_points, size, first_size)
            for optimizer in (job.dense_optimizer, job.table_optimizer)
        )
        points.append(RatePoint(done_fraction=(step + 1) / NUM_POINTS, global_size=size, dense=dense, table=table))
    return points


def _compute_rate(
    optimizer: DenseOptimizerConfig | TableOptimizerConfig, point: float, num_points: float, size: int, first_size: int
) -> float:
    """Compute the rate at a point of `num_points` at a batch of `size` samples, which began with one of `first_size`.

    The points cover the run, or a part with its own warm-up and decay.
    """
    schedule = optimizer.schedule
    num_warmup_steps = schedule.count_warmup_steps(num_points, first_size)
    return compute_peak_rate(optimizer, size) * schedule.factor(point, num_points, num_warmup_steps)
