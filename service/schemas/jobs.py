"""Jobs as the service answers with them, their events, attempts and checkpoints, and where they may run."""

from datetime import datetime
from typing import Any

from pydantic import Field

from dlrm.record import LossForecast, RankEnd, YardstickResult
from service.schemas.answers import Answer

ENDED_STATES = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


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
    labels: dict[str, str] = Field(default={})
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
    batch: int | None = None
    """Samples of the largest batch that the document states or that was decided; None while it is undecided."""
    optimizer: str | None = None
    """Name of the optimizer of the dense parameters, such as `adamw`; None if the document names none."""
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


class FacetValue(Answer, frozen=True):
    """Value by which a list of jobs can be narrowed."""

    value: str
    """State, owner, or value of a label."""
    num_jobs: int
    """Number of jobs of the list that have it."""


class LabelFacet(Answer, frozen=True):
    """Name of labels by which a list of jobs can be narrowed."""

    name: str
    """Name of the labels."""
    num_values: int
    """Number of different values."""
    values: list[FacetValue]
    """Most frequent values, at most ten."""


class Facets(Answer, frozen=True):
    """Numbers of jobs by what a list can be narrowed to. Jobs that are being deleted may count too."""

    num_jobs: int
    """Number of jobs that the filters select."""
    states: list[FacetValue]
    """States of jobs that all filters but `state` select, most frequent first."""
    owners: list[FacetValue]
    """Owners of jobs that all filters but `owner` select, most frequent first."""
    labels: list[LabelFacet]
    """Labels of the jobs that the filters select, by name; of many names the first ones."""
    is_exact: bool
    """Whether these numbers are of all jobs; by labels, names, ends and texts, only the newest ten thousand count."""
    are_labels_exact: bool
    """Whether the numbers of labels are of all jobs; with any filter, only the newest ten thousand count."""


class QueueHolder(Answer, frozen=True):
    """Job with resources that others wait for, or several jobs in one entry without id."""

    id: str | None = None
    """Id of the job; None for the entry of all jobs that the sender may not know of, or that are too many to list."""
    name: str | None = None
    """Name of the job; None for several."""
    owner: str | None = None
    """Owner of the job; None for several."""
    state: str | None = None
    """State of the job; None for several."""
    num_jobs: int = 1
    """Number of jobs of the entry."""
    num_cores: int
    """CPU cores that it holds, on all its machines."""
    memory_bytes: int
    """Bytes of memory that it holds, on all its machines."""
    num_gpus: int = 0
    """GPUs that it holds, on all its machines."""
    expected_end_at: datetime | None = None
    """Time at which it is expected to end, to the minute; None if that cannot be said, and for several jobs."""


class QueuePlace(Answer, frozen=True):
    """Place of a waiting job in the queue."""

    position: int
    """Number of the job among all that wait for resources, counted from 1; later ones that fit may pass it."""
    waits_for: str
    """Sentence on what the job waits for."""
    expected_start_at: datetime | None = None
    """Time at which the job is expected to start, to the minute; None if that cannot be said."""
    holders: list[QueueHolder] = Field(default=[])
    """Jobs that hold what the job waits for, at most ten entries; empty if no job has to end before it starts."""


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
    metrics: dict[str, float | None] = Field(default={})
    """Metrics of the last evaluation, complete once the job has ended: speed and simple models' too."""
    yardsticks: list[YardstickResult] = Field(default=[])
    """Simple models that the model was compared with, on the same evaluation rows."""
    warnings: list[str] = Field(default=[])
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
    spec: dict[str, Any] = Field(default={})
    """Job document with all defaults filled in."""
    derived: list[DerivedNumber] = Field(default=[])
    """Numbers that were derived from the document."""
    batch_stages: list[BatchStage] = Field(default=[])
    """Sizes of a batch that grows, in order; empty for a batch of one size."""
    forecast: LossForecast | None = None
    """Forecast of the log-loss at the end; None unless the job trains, at one batch size."""
    queue: QueuePlace | None = None
    """Place in the queue; None while the job does not wait there, and in answers to changes of the job."""


class DocumentDifference(Answer, frozen=True):
    """Field of a job document whose value is not its default."""

    field: str
    """Dotted path of the field, such as `batch.global_size`."""
    value: Any
    """Value as the document has it, such as `"8GiB"`, or false in place of null."""
    default: Any
    """Value that the field would have if this document left it out."""
    meaning: str
    """Meaning of the field, in a sentence."""


class ShortDocument(Answer, frozen=True):
    """Shortest document of a job: it makes the same job as the whole one."""

    toml: str
    """Document as TOML."""
    document: dict[str, Any]
    """Document as JSON."""
    differences: list[DocumentDifference]
    """Fields that the document states."""


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
    details: dict[str, Any] = Field(default={})
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
