"""Facts about a job on which advice rests: a frozen record, read at one time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from dlrm.config import Decision, get_min_large_steps
from dlrm.record import MIN_STEPS_OF_RUN, BatchAdvice, Course, EvaluationSource, QualityWarning, YardstickResult
from service.launchers.protocol import Capacity, Demand
from service.schemas import QueueHolder


class Details(BaseModel, frozen=True):
    """Base of the details of events; other trainers may leave fields out."""

    model_config = ConfigDict(extra="ignore")


class TablePlace(Details, frozen=True):
    """Sharding type and ranks of a table."""

    type: str
    ranks: list[int]


class PlanDetails(Details, frozen=True):
    """Details of the event `plan`. Lists of bytes have an entry for each rank."""

    weight_bytes: list[int]
    optimizer_bytes: list[int]
    buffer_bytes: list[int]
    memory_bytes: int
    """Bytes of memory of a rank on GPUs; on CPUs of the ranks of a machine together."""
    ranks_per_memory: int
    imbalance_of_seconds: float
    """Seconds that tables take the slowest rank, over the mean of all ranks."""
    exchange_bytes: dict[str, float]
    """Bytes that a step exchanges, by kind; all 0 if the ranks share memory."""
    tables: dict[str, TablePlace]

    @property
    def planned_bytes(self) -> int:
        """Bytes that the fullest memory uses."""
        return max(self._sum_by_memory(self.weight_bytes, self.optimizer_bytes, self.buffer_bytes), default=0)

    @property
    def copy_bytes(self) -> int:
        """Bytes of a copy of tables and optimizer state for a checkpoint, in the memory with the largest one."""
        return max(self._sum_by_memory(self.weight_bytes, self.optimizer_bytes), default=0)

    def _sum_by_memory(self, *parts: Sequence[int]) -> list[int]:
        totals = [sum(of_rank) for of_rank in zip(*parts, strict=False)]
        size = max(1, self.ranks_per_memory)
        return [sum(totals[start : start + size]) for start in range(0, len(totals), size)]


class StepParts(Details, frozen=True):
    """Details of the event `step_parts`: measured seconds of a step by part, on rank 0."""

    num_steps: int
    seconds: dict[str, float]

    @property
    def step_seconds(self) -> float:
        return sum(self.seconds.values())

    def get_share(self, part: str) -> float:
        """Return the share of a step that a part takes."""
        return self.seconds.get(part, 0.0) / self.step_seconds if self.step_seconds > 0 else 0.0


class Decisions(Details, frozen=True):
    """Details of the event `decided`."""

    decisions: list[Decision]


class LargeBatch(Details, frozen=True):
    """Details of the warning `large_batch`."""

    noise_scale: float
    largest_useful_batch: int


class CheckpointCost(Details, frozen=True):
    """Details of the event `checkpoint_saved`, as far as they are about time."""

    stall_seconds: float
    """Seconds that training has waited for it."""


class CopyShortage(Details, frozen=True):
    """Details of the warning `checkpoint_waits`."""

    copy_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class CheckpointPace:
    """Mean cost of the last checkpoints of a job."""

    num_checkpoints: int
    stall_seconds: float
    """Seconds that training waits for one."""
    interval_seconds: float
    """Seconds from one to the next."""


@dataclass(frozen=True)
class StartOption:
    """Change of one field with which a waiting job would start now."""

    field: str
    value: Any
    present: Any
    """Value of the field in the document."""
    slowdown: float
    """Largest factor by which the run takes longer: the cores before over the cores after."""


@dataclass(frozen=True)
class Waiting:
    """Wait of a job in the queue for resources."""

    lack: str
    """Lack of the job, in a sentence without its end."""
    expected_start_at: datetime | None
    """Time at which it is expected to start; None if that cannot be said."""
    wait_seconds: float | None
    """Seconds until then, in whole minutes."""
    run_seconds: float | None
    """Median length of earlier runs of the same name; None without any."""
    option: StartOption | None
    """Change with which it would start now; None if there is none."""
    num_ahead: int = 0
    """Number of waiting jobs before it in the queue."""
    holders: Sequence[QueueHolder] = ()
    """Jobs that hold what it waits for, as its owner may know of them."""


@dataclass(frozen=True)
class PlannedChange:
    """Plan of the same job with other settings of its sharding, by the planner's estimate."""

    kind: str
    """Kind of change: `automatic_plan`, `split_table` or `exchange_dtype`."""
    changes: Mapping[str, Any]
    """Values by field of the document."""
    step_seconds: float
    moved: Sequence[tuple[str, str]]
    """Tables whose sharding type changes, each with the new one."""


@dataclass(frozen=True)
class PlanComparison:
    """Plan of a job beside plans with other settings, all made with the same figures of the machine."""

    terms: Mapping[str, float]
    """Estimated seconds of a step on the slowest rank by term."""
    step_seconds: float
    imbalance: float
    """Seconds that tables take the slowest rank, over the mean of all ranks."""
    options: Sequence[PlannedChange]


@dataclass(frozen=True)
class Facts:
    """Facts about one job; what is unknown is None or empty."""

    state: str
    reason: str
    spec: Mapping[str, Any]
    """Job document with defaults filled in."""
    decided: Mapping[str, Any]
    """Values of fields that the document leaves open, by their dotted path, once the run has decided them."""
    resolved: Mapping[str, Any]
    """Job document with nothing left open: assumed values until the run has decided them."""
    demand: Demand
    progress: Mapping[str, Any]
    """Fields of the stored progress."""
    deadline_used_seconds: float | None = None
    """Seconds of the deadline that have passed, up to the end of the job; None before they count, and without one."""
    metrics: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    """Metrics of the last outcome."""
    warnings: Sequence[QualityWarning] = ()
    """Warnings of what the metrics say against the model of a job that has succeeded."""
    yardsticks: Sequence[YardstickResult] = ()
    course: Course | None = None
    constant_log_loss: float | None = None
    """Log-loss of the constant predictor on the evaluation rows; None before the first evaluation."""
    aucs: Sequence[tuple[float, float | None]] = ()
    """AUC of each evaluation with its standard error, in order."""
    last_step: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Last report of a step."""
    messages: Mapping[str, str] = field(default_factory=dict[str, str])
    """Messages of the last events of some names."""
    batch_advice: BatchAdvice | None = None
    large_batch: LargeBatch | None = None
    plan: PlanDetails | None = None
    step_parts: StepParts | None = None
    checkpoints: CheckpointPace | None = None
    copy_shortage: CopyShortage | None = None
    waiting: Waiting | None = None
    total: Capacity | None = None
    """Resources that all jobs of the same launcher may occupy."""
    comparison: PlanComparison | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ("SUCCEEDED", "FAILED", "CANCELLED")

    @property
    def world_size(self) -> int:
        resources = self.resolved["resources"]
        return self.demand.num_nodes * int(resources["workers_per_node"])

    @property
    def is_on_gpus(self) -> bool:
        return bool(self.resolved["resources"]["gpus_per_worker"])

    @property
    def evaluation_source(self) -> EvaluationSource:
        data = self.spec["data"]
        return EvaluationSource.of_job(data["format"], data["eval"])

    @property
    def num_steps_done(self) -> int:
        return int(self.metrics.get("last_step") or self.progress.get("step") or 0)

    @property
    def num_run_samples(self) -> int:
        """Samples of the whole run; 0 if they are not known."""
        return int(self.progress.get("num_run_samples") or self.metrics.get("num_samples") or 0)

    @property
    def min_steps(self) -> int:
        """Number of steps below which the run hardly learns, as the warning `few_steps` counts them."""
        if self.spec["preset"] or self.get("batch.schedule") or self.get("batch.growth"):
            return MIN_STEPS_OF_RUN
        return max(MIN_STEPS_OF_RUN, get_min_large_steps(self.get("batch.global_size"), self.num_run_samples))

    @property
    def training_seconds(self) -> float | None:
        """Seconds that the run has trained, or will have at the present speed; None if that is not known."""
        samples, speed = self.metrics.get("num_samples"), self.metrics.get("samples_per_second")
        if not (samples and speed):
            samples, speed = self.num_run_samples, self.progress.get("samples_per_second")
        return samples / speed if samples and speed else None

    def get(self, path: str) -> Any:
        """Return the value of a field of the document, as it was decided if the document leaves it open."""
        value = get_field(self.spec, path)
        if value != "auto":
            return value
        return self.decided[path] if path in self.decided else get_field(self.resolved, path)

    def find_warning(self, name: str) -> QualityWarning | None:
        return next((warning for warning in self.warnings if warning.name == name), None)

    def find_yardstick(self, name: str) -> YardstickResult | None:
        return next((result for result in self.yardsticks if result.name == name), None)


def get_field(document: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path of a document; None if it, or a section on the way, is absent or null."""
    value: Any = document
    for name in path.split("."):
        value = None if value is None else value.get(name)
    return value
