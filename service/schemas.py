"""Answers of the service, as endpoints return them and the client reads them.

The client reads the answers of newer and older services too: it ignores fields that it does not know, and takes any
text as a state or a role. Fields that were not there from the beginning have defaults; the documentation of the API
calls them required all the same, since this service always sends them.
"""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from dlrm.record import EvaluationReport, RankEnd, StepReport, YardstickResult

ENDED_STATES = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})

RoleName = Literal["viewer", "submitter", "admin"]

Item = TypeVar("Item")


class Answer(BaseModel, frozen=True):
    """Base of all answers."""

    model_config = ConfigDict(extra="ignore", from_attributes=True, json_schema_serialization_defaults_required=True)


class AttemptStart(Answer, frozen=True):
    """Point at which an attempt began to train. It repeats everything after that point."""

    attempt: int
    step: int
    """Batches consumed before the attempt; training steps of earlier attempts after this one are void."""
    evaluated_step: int
    """Step of the last evaluation that still counts; evaluations of earlier attempts after it are void."""


class Page(Answer, Generic[Item], frozen=True):
    """One page of a list; `next_cursor` is null on the last one."""

    items: list[Item]
    next_cursor: str | None = None


class BriefProgress(Answer, frozen=True):
    """Progress of the last attempt of a job, as in the list of jobs; a field is empty until it is reported."""

    phase: str | None = None
    """Current phase, such as `training`; `phase` and `eta_seconds` are None while no attempt runs."""
    step: int | None = None
    num_steps: int | None = None
    """Batches of the whole run; an estimate if the batch grows by its noise scale."""
    done_fraction: float | None = None
    """Share of the run that is done, by samples."""
    loss: float | None = None
    auc: float | None = None
    """AUC of the last evaluation; once an attempt has ended, the AUC of its outcome."""
    samples_per_second: float | None = None
    """Speed, smoothed over several steps; once an attempt has ended, the speed of its outcome."""
    eta_seconds: float | None = None
    """Seconds until the last step, at the present speed."""


class Progress(BriefProgress, frozen=True):
    """Progress of the last attempt of a job; a field is empty until it is reported."""

    message: str | None = None
    """Details of the phase: its work, speed and remaining time; None while no attempt runs."""
    global_size: int | None = None
    """Samples of a full batch at this step, which grows if the document says so."""
    noise_scale: float | None = None
    """Noise scale in samples; None if it is not measured, or hidden by noise of its own."""


class Job(Answer, frozen=True):
    """Job, as in the list of jobs: a small part of its `JobDetails`."""

    id: str
    name: str
    labels: dict[str, str] = {}
    priority: int = 0
    state: str
    reason: str = ""
    """Reason why the job waits or has ended, as a short identifier."""
    message: str = ""
    """The reason as readable text, such as the error of the first rank that failed; cut in the list of jobs."""
    has_warnings: bool = False
    """Whether the job has succeeded and its metrics say something against the model."""
    is_held: bool = False
    """Whether the job, while it is queued, waits until it is released."""
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restarts_at: datetime | None = None
    """Earliest time of the next restart; None while the job does not wait for one."""
    owner: str = ""
    """Owner of the job; all keys of the same owner see it, and so do the keys of admins."""
    num_attempts: int = 0
    launcher: str = "local"
    """Launcher of the job: `local`, processes on the machine of the service, or `kubernetes`, pods of a cluster."""
    num_nodes: int = 1
    """Number of machines; the largest one if the document leaves a range."""
    world_size: int
    progress: BriefProgress = BriefProgress()

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES


class DerivedNumber(Answer, frozen=True):
    """Number that the service derived from the job document, with the reason."""

    name: str
    value: int | float
    unit: str = ""
    reason: str = ""


class LabelCount(Answer, frozen=True):
    """Label that jobs have."""

    name: str
    value: str
    num_jobs: int
    """Number of jobs with this label that the sender may know of."""


class QueuePlace(Answer, frozen=True):
    """Place of a waiting job in the queue."""

    position: int
    """Number of the job among all that wait for resources, counted from 1; later ones that fit may pass it."""
    waits_for: str
    """Sentence on what the job waits for."""
    expected_start_at: datetime | None = None
    """Time at which the job is expected to start, to the minute; None if that cannot be said."""


class BatchStage(Answer, frozen=True):
    """Consecutive batches of one size of a job whose batch grows."""

    global_size: int
    until_fraction: float | None = None
    """Share of the run's samples at which it ends; None if that is its end, or depends on the noise scale."""
    is_current: bool = False
    """Whether the last step that was reported is of it."""


class JobDetails(Job, frozen=True):
    """Job with its document, in which all defaults are filled in."""

    created_by: str = ""
    """Name of the key that submitted the job."""
    restarted_from: str | None = None
    """Id of the job, perhaps deleted since, whose document this one repeats; None if it was submitted."""
    progress: Progress = Progress()
    metrics: dict[str, float | None] = {}
    """Metrics of the last evaluation, complete once the job has ended: speed and simple models' too."""
    yardsticks: list[YardstickResult] = []
    """Simple models that the model was compared with, on the same evaluation rows."""
    warnings: list[str] = []
    """Sentences on what the metrics say against the model of a job that has succeeded, with what to try."""
    run_directory: str = ""
    """Directory of the run as its machines see it; `files_at` says where people find it."""
    model_path: str | None = None
    """Directory of the trained model, or its URI in a bucket; None until it exists."""
    files_at: str = ""
    """Place of the files of the run for people: a path on the service's machine, a URI, or a directory of a volume."""
    are_files_seen: bool = True
    """Whether the service sees these files, and so removes them when the job is deleted."""
    image: str | None = None
    """Container image of the next attempt; None if the job runs in no container."""
    spec: dict[str, Any] = {}
    derived: list[DerivedNumber] = []
    batch_stages: list[BatchStage] = []
    """Sizes of a batch that grows, in order; empty for a batch of one size."""
    queue: QueuePlace | None = None
    """Place in the queue; None while the job does not wait there, and in answers to changes of the job."""


class DeletedJob(JobDetails, frozen=True):
    """Job that was deleted."""

    files_left_at: str | None = None
    """Place of the files that stay, since the service does not see them; None if they are removed."""


class Event(Answer, frozen=True):
    """Event of a job: a change of state, or a report of a rank."""

    id: int | str
    time: datetime
    actor: str = ""
    kind: str
    from_state: str | None = None
    to_state: str | None = None
    reason: str | None = None
    message: str = ""
    name: str | None = None
    rank: int | None = None
    attempt: int | None = None
    details: dict[str, Any] = {}


class Attempt(Answer, frozen=True):
    """Attempt of a job: one start of its processes."""

    id: str
    number: int
    state: str
    reason: str | None = None
    message: str = ""
    exit_code: int | None = None
    started_at: datetime
    finished_at: datetime | None = None
    start_step: int | None = None
    """Batches consumed before the attempt: 0, or the number in the checkpoint it resumed from; None until it trains."""
    saved_step: int | None = None
    """Step of the newest checkpoint that the attempt wrote, known once it has ended; None if it wrote none."""
    node: str | None = None
    """Machine that the attempt runs on; None until it is launched."""
    rank_ends: list[RankEnd] | None = None
    """Ends of the ranks that failed; None until the attempt has ended, or if they were not recorded."""


class Checkpoint(Answer, frozen=True):
    """Complete checkpoint."""

    step: int
    """Batches consumed."""
    num_samples: int
    done_fraction: float
    """Fraction of the run's samples that was done."""
    time: datetime
    num_bytes: int
    world_size: int
    path: str
    """Path of its directory, on the machines of the run if the service does not see it; or its URI in a bucket."""


class StepMetric(StepReport):
    """Metrics of one training step, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore")

    attempt: int


class EvaluationMetric(EvaluationReport):
    """Metrics of one evaluation, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore")

    attempt: int


Metric = Annotated[StepMetric | EvaluationMetric, Field(discriminator="kind")]


class MetricPage(Page[Metric], frozen=True):
    """One page of metrics, with the starts of all attempts of the job.

    A start may make metrics of earlier pages void.
    """

    starts: list[AttemptStart] = []
    are_steps_removed: bool = False
    """Whether retention has removed the reports of steps, so that the job's curves alone are left of them."""


class Curve(Answer, frozen=True):
    """Values of one name, one for each point; null for a value that is not known or was not finite."""

    last: list[float | None] = []
    """Value at the last step of each point."""
    mean: list[float | None] | None = None
    """Mean over the reported steps of each point; absent, as the next two, if each point is one step."""
    min: list[float | None] | None = None
    max: list[float | None] | None = None


class CurvePoints(Answer, frozen=True):
    """Curves over the same points. A later answer with the same `steps_per_point` can be appended to this one."""

    steps_per_point: int
    """Steps that a point stands for, a power of two; a point at which an attempt begins or ends has fewer."""
    steps: list[int] = []
    """Last step of each point."""
    curves: dict[str, Curve] = {}
    """Curves by name."""


class Curves(Answer, frozen=True):
    """Curves of a job, without what later attempts have repeated."""

    training: CurvePoints | None = None
    """Numbers of training steps; null if none was asked for."""
    evaluation: CurvePoints | None = None
    """Numbers of evaluations; null if none was asked for."""
    starts: list[AttemptStart] = []


class LogPart(Answer, frozen=True):
    """Part of one log file."""

    attempt: int | None = None
    rank: int | Literal["launch"]
    text: str
    next_offset: int
    complete: bool
    """Whether the attempt has ended and the log was read to its end."""


class LogMatch(Answer, frozen=True):
    """Line of a log in which a text was found."""

    offset: int
    """Offset in bytes of the line in its log, from which `GET …/logs` reads on."""
    text: str
    """The line without its end, cut after some thousand characters."""


class LogMatches(Answer, frozen=True):
    """Lines of a part of a log that contain a text, in their order."""

    attempt: int | None = None
    rank: int | Literal["launch"]
    items: list[LogMatch]
    next_offset: int
    """Offset in bytes from which to search on."""
    complete: bool
    """Whether the attempt has ended and the log was searched to its end."""


class Artifact(Answer, frozen=True):
    """Artifact of a run, such as its model, a checkpoint or a log; or a file of one."""

    name: str
    """Path in the run directory, by which it is downloaded."""
    kind: str
    """One of `model`, `checkpoint`, `log`, `profile`, `scores`, `trackers`, `outcome`, `document`."""
    is_directory: bool = False
    """Whether it has several files, which are downloaded as one tar archive, or one by one."""
    num_bytes: int | None = None
    """Bytes of its files; None if the service does not see them."""
    modified_at: datetime | None = None
    """Time of the last change; None if the service does not see it."""
    place: str | None = None
    """Path or URI of what the service does not see, and cannot send; None if it can be downloaded."""


class Plan(Answer, frozen=True):
    """Plan of a job that is not submitted; `POST /v1/plans` has more fields."""

    warnings: list[str] | None = None
    """Shortages that a run would have, such as too few steps, a sentence each; None if the job cannot be planned."""


class Capacity(Answer, frozen=True):
    """Resources that jobs of one launcher may use, in total and free; empty if the service does not know them."""

    num_cores: int | None
    num_cores_free: int | None
    memory_bytes: int | None
    memory_bytes_free: int | None
    num_gpus: int | None = None
    num_gpus_free: int | None = None


class KeyView(Answer, frozen=True):
    """API key, without its secret."""

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


class ApiKey(KeyView, frozen=True):
    """API key; the secret `key` is present only in the answer that creates it."""

    key: str | None = Field(default=None, repr=False)


class LoginLink(Answer, frozen=True):
    """Link that signs a browser in once: `URL of the service/signin#token=…`."""

    token: str = Field(repr=False)
    owner: str
    role: str
    expires_at: datetime


class AuditEvent(Answer, frozen=True):
    """Row of the audit log: an action on keys, sessions, quotas or jobs."""

    id: int
    time: datetime
    actor: str
    """Owner of the key that acted; empty if nobody was signed in, or the service acted by itself."""
    key_id: str | None = None
    action: str
    target: str
    """Id or name of what was changed."""
    address: str = ""
    """Network address of the client."""
    request_id: str = ""
    details: dict[str, Any] = {}


class DueJob(Answer, frozen=True):
    """Job that a rule of retention chooses."""

    id: str
    owner: str
    finished_at: datetime
    reason: str
    """Rule: `age`, `count` or `bytes`."""
    num_bytes: int | None = None
    """Bytes of its run directory; None if it was not measured yet."""


class RetentionPreview(Answer, frozen=True):
    """Jobs that rules of retention would remove now."""

    days: float | None = None
    """Days after its end for which a job stays; None: no such rule."""
    jobs_per_owner: int | None = None
    """Ended jobs of one owner that stay; None: no such rule."""
    run_bytes: int | None = None
    """Bytes that the run directories of ended jobs may have together; None: no such rule."""
    point_days: float | None = None
    """Days after the end of a job for which its raw points stay; None: as long as the job."""
    num_jobs: int
    """Jobs that would go."""
    num_bytes: int
    """Bytes of their run directories, as far as these were measured."""
    items: list[DueJob]
    """The first of these jobs, in the order in which they ended."""
