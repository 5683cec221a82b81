"""The service's answers. Fields that a newer service adds are ignored."""

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from dlrm.record import EvaluationReport, StepReport

ENDED_STATES = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})

Item = TypeVar("Item")


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class AttemptStart(_Answer):
    """Where an attempt began to train: later steps, and later evaluations, of earlier attempts are void."""

    attempt: int
    step: int
    evaluated_step: int


class Page(_Answer, Generic[Item]):
    """One page of a list; `next_cursor` is null on the last one."""

    items: list[Item]
    next_cursor: str | None = None


class Progress(_Answer):
    """How far a job has come; null where it is not known yet."""

    phase: str | None = None
    message: str | None = None
    """What the phase does, such as how fast it prepares rows."""
    step: int | None = None
    num_steps: int | None = None
    done_fraction: float | None = None
    loss: float | None = None
    auc: float | None = None
    samples_per_second: float | None = None
    eta_seconds: float | None = None
    noise_scale: float | None = None
    """Samples."""


class Job(_Answer):
    """A job as the list shows it."""

    id: str
    name: str
    labels: dict[str, str] = {}
    priority: int = 0
    state: str
    reason: str | None = None
    """Why it waits, or why it ended; a short word."""
    message: str | None = None
    """The same for people, such as the first failing rank's error."""
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restarts_at: datetime | None = None
    """Not started again before; null while it waits for no restart."""
    created_by: str | None = None
    num_attempts: int = 0
    world_size: int
    progress: Progress = Progress()
    metrics: dict[str, float | None] = {}
    """Of the last evaluation; complete once the job has ended."""
    run_directory: str | None = None
    model_path: str | None = None
    """The trained model; null until there is one."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES


class DerivedNumber(_Answer):
    """A number the service decided, with its reason."""

    name: str
    value: int | float
    unit: str = ""
    reason: str = ""


class JobDetails(Job):
    """A job with its document, defaults filled in."""

    spec: dict[str, Any] = {}
    derived: list[DerivedNumber] = []


class Event(_Answer):
    """A change of state, or something a rank reported."""

    id: int | str
    time: datetime
    actor: str | None = None
    kind: str
    from_state: str | None = None
    to_state: str | None = None
    reason: str | None = None
    message: str | None = None
    name: str | None = None
    rank: int | None = None
    attempt: int | None = None
    details: dict[str, Any] | None = None


class Attempt(_Answer):
    """One start of a job."""

    id: str
    number: int
    state: str
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    start_step: int | None = None
    """Batches consumed before it; null until it trains."""
    saved_step: int | None = None
    """Of the newest checkpoint it has written, once it has ended; null where it wrote none."""


class Checkpoint(_Answer):
    """A complete checkpoint on the service's disk."""

    step: int
    """Batches consumed."""
    num_samples: int
    done_fraction: float
    time: datetime
    num_bytes: int
    world_size: int
    path: str


class StepMetric(StepReport):
    """One training step, and the attempt it belongs to."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    attempt: int


class EvaluationMetric(EvaluationReport):
    """One evaluation, and the attempt it belongs to."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    attempt: int


Metric = Annotated[StepMetric | EvaluationMetric, Field(discriminator="kind")]


class MetricPage(Page[Metric]):
    """One page of metrics. What `starts` makes void may stand on an earlier page."""

    starts: list[AttemptStart] = []


class LogPart(_Answer):
    """A part of one log file."""

    attempt: int | None = None
    rank: int | str
    text: str
    next_offset: int
    complete: bool
    """The attempt has ended and all was read."""


class Capacity(_Answer):
    """What the machine of the service has, and what is free."""

    num_cores: int
    num_cores_free: int
    memory_bytes: int
    memory_bytes_free: int


class ApiKey(_Answer):
    """An API key; `key` itself is shown once, when it is made."""

    id: str
    name: str
    role: str
    created_at: datetime
    key: str | None = None
