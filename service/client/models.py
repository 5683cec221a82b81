"""Models of the service's responses. Fields that a newer service adds are ignored."""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from dlrm.record import EvaluationReport, RankEnd, StepReport, YardstickResult

ENDED_STATES = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})

RoleName = Literal["viewer", "submitter", "admin"]

Item = TypeVar("Item")


class _Response(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class AttemptStart(_Response):
    """Point at which an attempt began to train.

    It repeats everything after that point: metrics of earlier attempts with a larger step are void.
    """

    attempt: int
    step: int
    """Batches consumed before the attempt; training steps of earlier attempts after this one are void."""
    evaluated_step: int
    """Step of the last evaluation that still counts; evaluations of earlier attempts after it are void."""


class Page(_Response, Generic[Item]):
    """One page of a list; `next_cursor` is null on the last one."""

    items: list[Item]
    next_cursor: str | None = None


class Progress(_Response):
    """Progress of a job; each field is None until it is known."""

    phase: str | None = None
    message: str | None = None
    """Details of the phase, such as the speed at which rows are prepared."""
    step: int | None = None
    num_steps: int | None = None
    global_size: int | None = None
    """Samples of a full batch at this step."""
    done_fraction: float | None = None
    """Share of the run that is done, by samples."""
    loss: float | None = None
    auc: float | None = None
    samples_per_second: float | None = None
    eta_seconds: float | None = None
    noise_scale: float | None = None
    """Noise scale in samples."""


class Job(_Response):
    """Job, as in the list of jobs."""

    id: str
    name: str
    labels: dict[str, str] = {}
    priority: int = 0
    state: str
    reason: str | None = None
    """Reason why the job waits or has ended, as a short identifier."""
    message: str | None = None
    """The reason as readable text, such as the error of the first rank that failed."""
    is_held: bool = False
    """Whether the job, while it is queued, waits until it is released."""
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restarts_at: datetime | None = None
    """Earliest time of the next restart; None while the job does not wait for one."""
    created_by: str | None = None
    """Name of the key that submitted the job."""
    owner: str | None = None
    """Owner of the job, whose keys all see it."""
    restarted_from: str | None = None
    """Id of the job whose document this one repeats; None if it was submitted."""
    num_attempts: int = 0
    launcher: str | None = None
    """Launcher of the job: "local", or "kubernetes"; None if the service is of an earlier version."""
    num_nodes: int = 1
    """Number of machines; the largest one where the document leaves a range."""
    world_size: int
    progress: Progress = Progress()
    metrics: dict[str, float | None] = {}
    """Metrics of the last evaluation; complete once the job has ended."""
    yardsticks: list[YardstickResult] = []
    """Simple models that the model was compared with, on the same evaluation rows."""
    warnings: list[str] = []
    """Sentences on what the metrics say against the model of a job that has succeeded, with what to try."""
    run_directory: str | None = None
    model_path: str | None = None
    """Directory of the trained model, or its URI in a bucket; None until it exists."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES


class DerivedNumber(_Response):
    """Number that the service derived from the job document, with the reason."""

    name: str
    value: int | float
    unit: str = ""
    reason: str = ""


class QueuePlace(_Response):
    """Place of a waiting job in the queue."""

    position: int
    """Number of the job among all that wait for resources, counted from 1; later ones that fit may pass it."""
    waits_for: str
    """Sentence on what the job waits for."""
    expected_start_at: datetime | None = None
    """Time at which the job is expected to start; None if that cannot be said."""


class DeletedJob(Job):
    """Job that was deleted."""

    files_left_at: str | None = None
    """Place of the files that stay, since the service does not see them; None if they are removed."""


class BatchStage(_Response):
    """Consecutive batches of one size, where the batch of a job grows."""

    global_size: int
    until_fraction: float | None = None
    """Share of the run's samples at which it ends; None if that is its end, or depends on the noise scale."""
    is_current: bool = False
    """Whether the last step that was reported is of it."""


class JobDetails(Job):
    """Job with its document, in which all defaults are filled in."""

    files_at: str | None = None
    """Place of the files of the run: a path on the machine of the service, a URI, or a directory of a volume."""
    are_files_seen: bool = True
    """Whether the service sees these files, and so removes them when the job is deleted."""
    image: str | None = None
    """Container image of the next attempt; None if the job runs in no container."""
    spec: dict[str, Any] = {}
    derived: list[DerivedNumber] = []
    batch_stages: list[BatchStage] = []
    """Sizes of a batch that grows, in order; empty for a batch of one size."""
    queue: QueuePlace | None = None
    """Place in the queue; None while the job does not wait there."""


class Event(_Response):
    """Event of a job: a change of state, or a report of a rank."""

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


class Attempt(_Response):
    """Attempt of a job: one start of its processes."""

    id: str
    number: int
    state: str
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    start_step: int | None = None
    """Number of batches consumed before the attempt; None until it trains."""
    saved_step: int | None = None
    """Step of the newest checkpoint that the attempt wrote, known once it has ended; None if it wrote none."""
    node: str | None = None
    """Machine that the attempt runs on; None until it is launched."""
    rank_ends: list[RankEnd] | None = None
    """Ends of the ranks that failed; None until the attempt has ended."""


class Checkpoint(_Response):
    """Complete checkpoint."""

    step: int
    """Number of batches consumed."""
    num_samples: int
    done_fraction: float
    time: datetime
    num_bytes: int
    world_size: int
    path: str
    """Path of its directory, on the machines of the run where the service does not see that; or its URI in a bucket."""


class StepMetric(StepReport):
    """Metrics of one training step, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    attempt: int


class EvaluationMetric(EvaluationReport):
    """Metrics of one evaluation, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    attempt: int


Metric = Annotated[StepMetric | EvaluationMetric, Field(discriminator="kind")]


class MetricPage(Page[Metric]):
    """One page of metrics, with the starts of all attempts of the job.

    A start may make metrics of earlier pages void.
    """

    starts: list[AttemptStart] = []


class LogPart(_Response):
    """Part of one log file."""

    attempt: int | None = None
    rank: int | Literal["launch"]
    text: str
    next_offset: int
    complete: bool
    """Whether the attempt has ended and the log was read to its end."""


class Plan(_Response):
    """Plan of a job that is not submitted; `POST /v1/plans` has more fields."""

    warnings: list[str] | None = None
    """Shortages that a run would have, such as too few steps, a sentence each; null where the job cannot be planned."""


class Capacity(_Response):
    """Cores and memory that jobs may use, in total and free; None if the service does not know them."""

    num_cores: int | None
    num_cores_free: int | None
    memory_bytes: int | None
    memory_bytes_free: int | None


class ApiKey(_Response):
    """API key; the secret `key` is present only in the response that creates it."""

    id: str
    name: str
    owner: str
    """Person, team or program that the key belongs to. All keys of one owner see the same jobs."""
    role: str
    created_at: datetime
    expires_at: datetime | None = None
    """Time from which on the key is refused; None if it never expires."""
    last_used_at: datetime | None = None
    """Time of the last use, to the minute; None before the first one."""
    revoked_at: datetime | None = None
    key: str | None = Field(default=None, repr=False)


class LoginLink(_Response):
    """Link that signs a browser in once: `URL of the service/signin#token=…`."""

    token: str = Field(repr=False)
    owner: str
    role: str
    expires_at: datetime


class AuditEvent(_Response):
    """Row of the audit log: an action on keys, sessions, quotas or jobs."""

    id: int
    time: datetime
    actor: str
    """Owner of the key that acted; empty where nobody was signed in, and where the service acted by itself."""
    key_id: str | None = None
    action: str
    target: str
    """Id or name of what was changed."""
    address: str = ""
    """Network address of the client."""
    request_id: str = ""
    details: dict[str, Any] = {}
