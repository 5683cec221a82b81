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

    model_config = ConfigDict(
        extra="ignore",
        from_attributes=True,
        json_schema_serialization_defaults_required=True,
        use_attribute_docstrings=True,
    )


class AttemptStart(Answer, frozen=True):
    """Point at which an attempt began to train. It repeats everything after that point."""

    attempt: int
    """Number of the attempt, counted from 1."""
    step: int
    """Batches consumed before the attempt; training steps of earlier attempts after this one are void."""
    evaluated_step: int
    """Step of the last evaluation that still counts; evaluations of earlier attempts after it are void."""


class Page(Answer, Generic[Item], frozen=True):
    """One page of a list; `next_cursor` is null on the last one."""

    items: list[Item]
    """Items of this page, in the order of the list."""
    next_cursor: str | None = None
    """Value of `cursor` that asks for the next page; None on the last one."""


class BriefProgress(Answer, frozen=True):
    """Progress of the last attempt of a job, as in the list of jobs; a field is empty until it is reported."""

    phase: str | None = None
    """Current phase, such as `training`; `phase` and `eta_seconds` are None while no attempt runs."""
    step: int | None = None
    """Number of batches consumed."""
    num_steps: int | None = None
    """Batches of the whole run; an estimate if the batch grows by its noise scale."""
    done_fraction: float | None = None
    """Share of the run that is done, by samples."""
    loss: float | None = None
    """Mean loss of the last step that was reported."""
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
    """Id of the job: `job_` and a ULID, so that ids sort by time."""
    name: str
    """Name of the job, from its document; several jobs may have it."""
    labels: dict[str, str] = {}
    """Labels of the job, by name."""
    priority: int = 0
    """Priority from -100 to 100; jobs of higher priority start first."""
    state: str
    """State of the job."""
    reason: str = ""
    """Reason why the job waits or has ended, as a short identifier."""
    message: str = ""
    """The reason as readable text, such as the error of the first rank that failed; cut in the list of jobs."""
    has_warnings: bool = False
    """Whether the job has succeeded and its metrics say something against the model."""
    is_held: bool = False
    """Whether the job, while it is queued, waits until it is released."""
    created_at: datetime
    """Time of submission."""
    started_at: datetime | None = None
    """Time of the first start; None before it."""
    finished_at: datetime | None = None
    """Time at which the job has ended; None before it."""
    restarts_at: datetime | None = None
    """Earliest time of the next restart; None while the job does not wait for one."""
    owner: str = ""
    """Owner of the job; all keys of the same owner see it, and so do the keys of admins."""
    num_attempts: int = 0
    """Number of attempts so far."""
    launcher: str = "local"
    """Launcher of the job: `local`, processes on the machine of the service, or `kubernetes`, pods of a cluster."""
    num_nodes: int = 1
    """Number of machines; the largest one if the document leaves a range."""
    world_size: int
    """Number of ranks; the largest one if the document leaves a range."""
    progress: BriefProgress = BriefProgress()
    """Progress of the last attempt, in short."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES


class DerivedNumber(Answer, frozen=True):
    """Number that the service derived from the job document, with the reason."""

    name: str
    """Name of the number."""
    value: int | float
    """Value of the number, in `unit`."""
    unit: str = ""
    """Unit in words; empty if it has none."""
    reason: str = ""
    """Formula or rule by which it was derived, in words."""


class LabelCount(Answer, frozen=True):
    """Label that jobs have."""

    name: str
    """Name of the label."""
    value: str
    """Value of the label."""
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
    """Number of samples of a full batch."""
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
    """Job document with all defaults filled in."""
    derived: list[DerivedNumber] = []
    """Numbers that were derived from the document."""
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
    """Number of the event; later events of a job have higher ones."""
    time: datetime
    """Time of the event."""
    actor: str = ""
    """Owner of the key that acted, or the part of the service."""
    kind: str
    """Kind of the event: `state` for a change of state, `rank` for a report of a rank, `action` for others."""
    from_state: str | None = None
    """State before the change; None for other kinds."""
    to_state: str | None = None
    """State after the change; None for other kinds."""
    reason: str | None = None
    """Reason of the change, as a short identifier; None for other kinds."""
    message: str = ""
    """Event in words."""
    name: str | None = None
    """Name of a reported event, such as `checkpoint_saved`; None for a change of state."""
    rank: int | None = None
    """Rank that reported it; None if no rank did."""
    attempt: int | None = None
    """Number of the attempt; None if it concerns none."""
    details: dict[str, Any] = {}
    """Further values, by the kind of the event."""


class Attempt(Answer, frozen=True):
    """Attempt of a job: one start of its processes."""

    id: str
    """Id of the attempt: `att_` and a ULID."""
    number: int
    """Number of the attempt within its job, counted from 1."""
    state: str
    """State of the attempt."""
    reason: str | None = None
    """Reason of its end, as a short identifier; None until it has ended."""
    message: str = ""
    """Reason in words."""
    exit_code: int | None = None
    """Exit code of its launch process; None until it has ended, or if it is not known."""
    started_at: datetime
    """Time of its start."""
    finished_at: datetime | None = None
    """Time of its end; None before it."""
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
    """Number of samples consumed."""
    done_fraction: float
    """Fraction of the run's samples that was done."""
    time: datetime
    """Time at which it was complete."""
    num_bytes: int
    """Size of its files in bytes."""
    world_size: int
    """Number of ranks that wrote it."""
    path: str
    """Path of its directory, on the machines of the run if the service does not see it; or its URI in a bucket."""


class StepMetric(StepReport):
    """Metrics of one training step, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore")

    attempt: int
    """Number of the attempt that reported it, counted from 1."""


class EvaluationMetric(EvaluationReport):
    """Metrics of one evaluation, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore")

    attempt: int
    """Number of the attempt that reported it, counted from 1."""


Metric = Annotated[StepMetric | EvaluationMetric, Field(discriminator="kind")]


class MetricPage(Page[Metric], frozen=True):
    """One page of metrics, with the starts of all attempts of the job.

    A start may make metrics of earlier pages void.
    """

    starts: list[AttemptStart] = []
    """Starts of all attempts of the job, oldest first."""
    are_steps_removed: bool = False
    """Whether retention has removed the reports of steps, so that the job's curves alone are left of them."""


class Curve(Answer, frozen=True):
    """Values of one name, one for each point; null for a value that is not known or was not finite."""

    last: list[float | None] = []
    """Value at the last step of each point."""
    mean: list[float | None] | None = None
    """Mean over the reported steps of each point; absent, as the next two, if each point is one step."""
    min: list[float | None] | None = None
    """Smallest value of each point."""
    max: list[float | None] | None = None
    """Largest value of each point."""


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
    """Starts of all attempts of the job, oldest first."""


class ComparedJob(Answer, frozen=True):
    """Job of a comparison."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    labels: dict[str, str]
    """Labels of the job, by name."""
    state: str
    """State of the job; only those that have succeeded have figures."""
    seed: int
    """Seed of the run, `run.seed`."""
    group: int
    """Number of its group, counted from 0; jobs of one group differ in their seeds alone."""


class ComparedSetting(Answer, frozen=True):
    """Setting in which groups differ."""

    field: str
    """Dotted path in the job document."""
    values: list[Any]
    """Values of the groups, in their order, with defaults filled in; None for a group without the field."""


class ComparedValue(Answer, frozen=True):
    """Figure of a group."""

    mean: float
    """Mean over the jobs of the group that have succeeded."""
    low: float | None = None
    """Lower end of the 95 % interval; None if nothing is known of the chance."""
    high: float | None = None
    """Upper end of the 95 % interval; None if nothing is known of the chance."""
    source: str = "none"
    """Source of the chance that the interval covers: `seeds`, `rows` (the choice of evaluation rows), or `none`."""
    num_jobs: int
    """Number of jobs in the mean."""


class ComparedFigure(Answer, frozen=True):
    """Figure by group."""

    name: str
    """Name of the figure, as in the metrics of a job; `seconds` count from the first start to the end."""
    values: list[ComparedValue | None]
    """Values of the groups, in their order; None for a group without the figure."""
    best: int | None = None
    """Number of the group with the best mean, which need not be significant; None with a single value."""


class Comparison(Answer, frozen=True):
    """Comparison of jobs."""

    jobs: list[ComparedJob]
    """Jobs in the order of the request."""
    settings: list[ComparedSetting]
    """Settings in which groups differ."""
    figures: list[ComparedFigure]
    """Final figures of the groups."""


class LogPart(Answer, frozen=True):
    """Part of one log file."""

    attempt: int | None = None
    """Number of the attempt; None if the job has none yet."""
    rank: int | Literal["launch"]
    """Rank whose log it is, or `launch` for the launch process."""
    text: str
    """Text of this part, in whole characters."""
    next_offset: int
    """Value of `offset` that continues after this part, in bytes."""
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
    """Number of the attempt, counted from 1."""
    rank: int | Literal["launch"]
    """Rank whose log it is, or `launch`."""
    items: list[LogMatch]
    """Lines that contain the text."""
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
    """CPU cores in all."""
    num_cores_free: int | None
    """CPU cores that no job holds."""
    memory_bytes: int | None
    """Bytes of memory in all."""
    memory_bytes_free: int | None
    """Bytes of memory that no job holds."""
    num_gpus: int | None = None
    """GPUs in all."""
    num_gpus_free: int | None = None
    """GPUs that no job holds."""


class KeyView(Answer, frozen=True):
    """API key, without its secret."""

    id: str
    """Id of the key: `key_` and a ULID."""
    name: str
    """Name of the key, such as `laptop`; unique among the valid keys of its owner."""
    owner: str
    """Person, team or program that the key belongs to. All keys of one owner see the same jobs."""
    role: str
    """Role of the key: `viewer`, `submitter` or `admin`."""
    created_at: datetime
    """Time at which it was created."""
    expires_at: datetime | None = None
    """Time from which on the key is refused; None if it never expires."""
    last_used_at: datetime | None = None
    """Time of the last use, to the minute; None before the first one."""
    revoked_at: datetime | None = None
    """Time at which it was revoked; None otherwise."""


class ApiKey(KeyView, frozen=True):
    """API key; the secret `key` is present only in the answer that creates it."""

    key: str | None = Field(default=None, repr=False)
    """Secret of the key; None but in the answer that creates it."""


class Me(Answer, frozen=True):
    """Sender of a request, and its rights."""

    key_id: str
    """Id of the key; in a browser, of the key that opened the session or made its link."""
    name: str
    """Name of the key; of the owner, if a browser signed in with a link for another owner than the key's."""
    owner: str
    """Owner whose jobs the sender sees."""
    role: str
    """Role: `viewer`, `submitter` or `admin`."""
    is_browser: bool = False
    """Whether the sender is a browser session."""
    expires_at: datetime | None = None
    """Time from which on the key is refused; None if it never expires."""


class LoginLink(Answer, frozen=True):
    """Link that signs a browser in once: `URL of the service/signin#token=…`."""

    token: str = Field(repr=False)
    """Token of the link, which works once."""
    owner: str
    """Owner that the session acts for."""
    role: str
    """Role of the session."""
    expires_at: datetime
    """Time until which the link works."""


class Schedule(Answer, frozen=True):
    """Schedule: a job document that is submitted at the times of a cron expression."""

    id: str
    """Id of the schedule: `sch_` and a ULID."""
    name: str
    """Name of the schedule, which its jobs have as the label `schedule`."""
    owner: str
    """Owner of the schedule and of its jobs."""
    cron: str
    """Cron expression: minute, hour, day of the month, month, day of the week."""
    time_zone: str
    """Time zone of the expression and of the document."""
    document: dict[str, Any]
    """Job document, with placeholders."""
    is_paused: bool
    """Whether nothing is submitted."""
    created_at: datetime
    """Time at which it was made."""
    next_at: datetime | None = None
    """Time of the next submission; None while it is paused."""
    last_due_at: datetime | None = None
    """Time that was due last; None before the first one."""
    last_result: str | None = None
    """Result of that time in words, such as a job or why there is none; None before the first one."""
    last_job_id: str | None = None
    """Job that was submitted last; None before the first one."""
    previous_job_id: str | None = None
    """Job that `{previous_job}` stands for: the last one that has succeeded; None before the first one."""
    previous_due_at: datetime | None = None
    """Time up to which the rows of that job reach; None before the first one."""


class Webhook(Answer, frozen=True):
    """Webhook: a URL that gets a signed request for each chosen change of a job's state."""

    id: str
    """Id of the webhook: `whk_` and a ULID."""
    owner: str
    """Owner of the jobs; `*` for all owners."""
    url: str
    """URL that gets the requests."""
    states: list[str]
    """States whose beginning is sent."""
    labels: dict[str, str] = {}
    """Labels that a job must all have."""
    created_at: datetime
    """Time at which it was made."""
    num_waiting: int = 0
    """Number of requests that are still to be answered with success."""
    stopped_because: str | None = None
    """Reason why nothing is sent any more; None otherwise."""
    last_tried_at: datetime | None = None
    """Time of the last request; None before the first one."""
    last_result: str | None = None
    """Status of the last request, or why there was none; None before the first one."""
    secret: str | None = Field(default=None, repr=False)
    """Secret of the signatures; None but in the answer that makes the webhook."""


class AuditEvent(Answer, frozen=True):
    """Row of the audit log: an action on keys, sessions, quotas or jobs."""

    id: int
    """Number of the row; later rows have higher ones."""
    time: datetime
    """Time of the action."""
    actor: str
    """Owner of the key that acted; empty if nobody was signed in, or the service acted by itself."""
    key_id: str | None = None
    """Id of the key that acted; None if nobody was signed in, or the service acted by itself."""
    action: str
    """Action, such as `key_created`."""
    target: str
    """Id or name of what was changed."""
    address: str = ""
    """Network address of the client."""
    request_id: str = ""
    """Id of the request, as in the log of the service."""
    details: dict[str, Any] = {}
    """Further values, by the action."""


class DueJob(Answer, frozen=True):
    """Job that a rule of retention chooses."""

    id: str
    """Id of the job."""
    owner: str
    """Owner of the job."""
    finished_at: datetime
    """Time at which the job has ended."""
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
