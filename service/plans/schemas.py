"""Plan of a job as the API returns it."""

from typing import Any

from pydantic import BaseModel

from dlrm.config import Decision
from service.http.problems import FieldProblem
from service.schemas import DerivedNumber


class Fit(BaseModel):
    """Answer whether the job could run on this machine."""

    now: bool
    """Whether the job would start at once."""
    ever: bool
    """Whether the job would start, now or when others have ended; if false, `POST /v1/jobs` refuses it, or it fails."""
    reason: str | None
    """Reason that the job would have while it cannot start; null if it would start at once."""
    why: list[FieldProblem]


class Memory(BaseModel):
    """Memory in bytes: of one GPU where the job uses GPUs, else of one machine."""

    asked_bytes: int
    """Bytes in `resources.memory`, or memory of a GPU."""
    planned_bytes: int | None
    """Bytes of tables, optimizer state, buffers and dense part on the GPU or machine with most; null without a plan."""


class RatePoint(BaseModel):
    """Learning rates at one point of the run."""

    done_fraction: float
    """Share of the run's samples that are done after this point."""
    global_size: int
    """Number of samples of one step at this point."""
    dense: float
    table: float


class Refusal(BaseModel):
    """Reason why the tables do not fit, or cannot be split as the document asks."""

    field: str
    table: str | None
    message: str
    short_bytes: int | None
    valid: list[str]
    """Alternatives that would fit; the planner has tried each of them."""


class PlanView(BaseModel):
    """Plan of a job that was not submitted."""

    document: dict[str, Any]
    """Job document with defaults filled in."""
    decisions: list[Decision]
    """Values of the fields that the document leaves open or its preset fills; empty while the rows that decide them are
    unknown."""
    derived: list[DerivedNumber]
    num_steps: int | None
    """Number of steps of the run; null if its rows are unknown, or the noise scale decides how its batch grows."""
    num_samples: int | None
    """Number of samples of the run, over all epochs; null if its rows are unknown."""
    training_seconds: float | None
    """Estimated seconds of all steps; null if there is no plan, or `num_steps` or the speed of the dense part is not
    known."""
    plan: dict[str, Any] | None
    """Plan as described in docs/plans.md; null if there is none, and `refusal` or `unknown_sizes` says why."""
    warnings: list[str] | None
    """Shortages that a run would have, such as too few steps or evaluation rows, as far as the rows are known; null
    if `plan` is null."""
    notes: list[str] | None
    """Estimates and assumptions of the plan, and obstacles to a run of it on this machine, such as more threads than
    cores; null if `plan` is null."""
    sizes_from: str | None
    refusal: Refusal | None
    unknown_sizes: str | None
    memory: Memory
    learning_rates: list[RatePoint]
    fits: Fit
