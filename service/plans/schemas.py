"""What a plan of a job looks like over HTTP."""

from typing import Any

from pydantic import BaseModel

from dlrm.config import DerivedNumber
from service.http.problems import FieldProblem


class Fit(BaseModel):
    """Whether the job could run here."""

    now: bool
    """It would be started at once."""
    ever: bool
    """It would be started once others have ended; false: `POST /v1/jobs` refuses it, or it would fail."""
    reason: str | None
    """Of what stands against it, the word that the job would have."""
    why: list[FieldProblem]


class Memory(BaseModel):
    """Bytes; of GPUs each, of a machine else."""

    asked_bytes: int
    """`resources.memory`, or what the GPUs have."""
    planned_bytes: int | None
    """Tables, optimizer state, buffers and the dense part where there is most; null where there is no plan."""


class RatePoint(BaseModel):
    """Learning rates at one place of the run."""

    done_fraction: float
    dense: float
    table: float


class Refusal(BaseModel):
    """Why tables find no room, or are not split as asked."""

    field: str
    table: str | None
    message: str
    short_bytes: int | None
    valid: list[str]
    """What would fit; each was tried."""


class PlanView(BaseModel):
    """A job that was not submitted."""

    document: dict[str, Any]
    """Defaults filled in."""
    derived: list[DerivedNumber]
    plan: dict[str, Any] | None
    """As docs/plans.md has it; null where there is none, and `refusal` or `unknown_sizes` say why."""
    notes: list[str] | None
    """What stands between the plan and a run of it here, such as more threads than there are cores; null as `plan`."""
    sizes_from: str | None
    refusal: Refusal | None
    unknown_sizes: str | None
    memory: Memory
    learning_rates: list[RatePoint]
    fits: Fit
