"""Plan of a job as the API returns it."""

from typing import Any

from dlrm.config import Decision
from service.http.problems import FieldProblem
from service.schemas import Answer, DerivedNumber


class Fit(Answer, frozen=True):
    """Answer whether the job could run on this machine."""

    now: bool
    """Whether the job would start at once."""
    ever: bool
    """Whether the job would start, now or when others have ended; if false, `POST /v1/jobs` refuses it, or it fails."""
    reason: str | None
    """Reason that the job would have while it cannot start; null if it would start at once."""
    why: list[FieldProblem]
    """Faults and shortages, by field; empty if it would start at once."""


class Memory(Answer, frozen=True):
    """Memory in bytes: of one GPU where the job uses GPUs, else of one machine."""

    asked_bytes: int
    """Bytes in `resources.memory`, or memory of a GPU."""
    planned_bytes: int | None
    """Bytes of tables, optimizer state, buffers and dense part on the GPU or machine with most; null without a plan."""


class RatePoint(Answer, frozen=True):
    """Learning rates at one point of the run."""

    done_fraction: float
    """Share of the run's samples that are done after this point."""
    global_size: int
    """Number of samples of one step at this point."""
    dense: float
    """Learning rate of the dense parameters."""
    table: float
    """Learning rate of the tables."""


class Refusal(Answer, frozen=True):
    """Reason why the tables do not fit, or cannot be split as the document asks."""

    field: str
    """Dotted path of the field at fault."""
    table: str | None
    """Table that does not fit; null if it is not one alone."""
    message: str
    """Reason in words."""
    short_bytes: int | None
    """Bytes that are missing; null if memory is not the reason."""
    valid: list[str]
    """Alternatives that would fit; the planner has tried each of them."""


class PlanView(Answer, frozen=True):
    """Plan of a job that was not submitted."""

    document: dict[str, Any]
    """Job document with defaults filled in."""
    decisions: list[Decision]
    """Values of the fields that the document leaves open or its preset fills; empty while the rows that decide them are
    unknown."""
    derived: list[DerivedNumber]
    """Numbers that were derived from the document."""
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
    """Source of the sizes of tables, in words; null if they are unknown."""
    refusal: Refusal | None
    """Reason why there is no plan though the sizes of tables are known; null otherwise."""
    unknown_sizes: str | None
    """Reason why the sizes of tables are unknown; null if they are known."""
    memory: Memory
    """Memory of the document, and memory of the plan."""
    learning_rates: list[RatePoint]
    """Learning rates at points that are evenly spaced over the run."""
    fits: Fit
    """Answer whether the job could run on this machine."""
