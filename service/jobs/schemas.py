"""Jobs, events, attempts and checkpoints as the API returns them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from dlrm.config import DerivedNumber
from dlrm.record import (
    EvaluationSource,
    RankEnd,
    YardstickResult,
    find_yardsticks,
    list_quality_warnings,
)
from service.jobs.batch_stages import BatchStageView, list_batch_stages
from service.queue.place import QueuePlace, Wait
from service.reports.progress import CLEARED_PROGRESS, Progress
from service.store.models import Event, Job
from service.store.run_facts import Checkpoint, RunFacts
from service.store.states import HOLDING, AttemptState, JobState


class JobView(BaseModel):
    """A job without its document, as lists show it."""

    id: str
    name: str
    labels: dict[str, str]
    priority: int
    state: JobState
    reason: str
    message: str
    is_held: bool
    """Whether the job, while it is queued, waits until it is released."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    restarts_at: datetime | None
    """Time before which the job is not started again; null while it waits for no restart."""
    created_by: str
    """Name of the key that submitted the job."""
    owner: str
    """Owner of the job; all keys of the same owner see it, and those of other owners do not, except for admins."""
    restarted_from: str | None
    """Id of the job whose document this one repeats, which may have been deleted since; null where it was submitted."""
    num_attempts: int
    launcher: str
    """Launcher of the job: `local`, processes on the machine of the service, or `kubernetes`, pods of a cluster."""
    num_nodes: int
    """Number of machines; the largest one where the document leaves a range."""
    world_size: int
    progress: Progress
    metrics: dict[str, float | None]
    """Final metrics: those of the last evaluation, speed, and those of simple models, such as `lightgbm_auc`."""
    yardsticks: list[YardstickResult]
    """Simple models that the model was compared with, on the same evaluation rows."""
    warnings: list[str]
    """Sentences on what the metrics say against the model of a job that has succeeded, with what to try."""
    run_directory: str
    """Directory of the run as its machines see it; `files_at` of a single job says where people find it."""
    model_path: str | None
    """Path of the model of a job that has succeeded, or its URI; null where it has none."""

    @classmethod
    def from_job(cls, job: Job, facts: RunFacts, wait: Wait | None = None) -> "JobView":
        """Build the schema. wait: what the job waits for, if that is not in its row."""
        return cls.model_validate(_collect_fields(job, facts, wait))


class DeletedJobView(JobView):
    """A job that was deleted."""

    files_left_at: str | None
    """Place of the files that stay, since the service does not see them; null where they are removed."""


class JobDetail(JobView):
    """A job with its document."""

    files_at: str
    """Place of the files of the run for people: a path on the machine of the service, a URI, or a directory of a volume
    of the cluster."""
    are_files_seen: bool
    """Whether the service sees these files, and so removes them when the job is deleted."""
    image: str | None
    """Container image of the next attempt; null where the job runs in no container."""
    spec: dict[str, Any]
    derived: list[DerivedNumber]
    batch_stages: list[BatchStageView]
    """Sizes of a batch that grows, in order; empty for a batch of one size."""
    queue: QueuePlace | None = None
    """Place in the queue; null while the job does not wait there."""

    @classmethod
    def from_job(
        cls, job: Job, facts: RunFacts, wait: Wait | None = None, queue: QueuePlace | None = None
    ) -> "JobDetail":
        details = {
            "spec": job.spec,
            "derived": job.resolved["derived"],
            "batch_stages": list_batch_stages(job.spec, job.resolved, job.progress.get("global_size")),
            "queue": queue,
            "files_at": facts.describe_place(job),
            "are_files_seen": facts.shares_files(job),
            "image": facts.find_image(job),
        }
        return cls.model_validate(_collect_fields(job, facts, wait) | details)


class EventView(BaseModel):
    """A change of state, or a report of a rank."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    time: datetime
    actor: str
    kind: str
    from_state: JobState | None
    to_state: JobState | None
    reason: str | None
    message: str
    name: str | None
    rank: int | None
    attempt: int | None
    details: dict[str, Any]

    @classmethod
    def from_event(cls, event: Event) -> "EventView":
        return cls.model_validate({name: getattr(event, name) for name in cls.model_fields} | {"id": str(event.id)})


class AttemptView(BaseModel):
    """One start of a job."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    number: int
    state: AttemptState
    reason: str | None
    message: str
    exit_code: int | None
    started_at: datetime
    finished_at: datetime | None
    start_step: int | None
    """Batches consumed before the attempt: 0, or those of the checkpoint that it resumed from; null until it trains."""
    saved_step: int | None
    """Step of the newest checkpoint that the attempt wrote, set at its end; null where it wrote none."""
    node: str | None
    """Machine that the attempt runs on; null until it is launched."""
    rank_ends: list[RankEnd] | None
    """Ends of the ranks that failed; null until the attempt has ended, or where it ended before they were recorded."""


class AttemptList(BaseModel):
    items: list[AttemptView]


class CheckpointView(BaseModel):
    """A complete checkpoint."""

    step: int
    """Batches consumed."""
    num_samples: int
    done_fraction: float
    """Share of the run's samples that was done."""
    time: datetime
    num_bytes: int
    world_size: int
    path: str
    """Path of its directory; where the service does not see the run directory, on the machines of the run, or a URI."""

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, num_run_samples: int | None) -> "CheckpointView":
        """Build the schema. num_run_samples: samples of the whole run; None: not known, steps stand for them."""
        if num_run_samples:
            done_fraction = checkpoint.num_samples / num_run_samples
        else:
            done_fraction = checkpoint.step / max(checkpoint.num_steps, 1)
        return cls.model_validate(vars(checkpoint) | {"done_fraction": done_fraction})


class CheckpointList(BaseModel):
    items: list[CheckpointView]


def _list_warnings(job: Job) -> list[str]:
    if not list_quality_warnings(job.metrics, EvaluationSource.SHARE):
        # Without the document, which a list of jobs does not read: it only decides on the words.
        return []
    data = job.spec["data"]
    source = EvaluationSource.of_job(data["format"], data["eval"])
    return [warning.message for warning in list_quality_warnings(job.metrics, source)]


def _collect_fields(job: Job, facts: RunFacts, wait: Wait | None) -> dict[str, Any]:
    has_succeeded = job.state == JobState.SUCCEEDED
    derived: dict[str, Any] = {
        "labels": {label.name: label.value for label in job.labels},
        "progress": Progress.model_validate(job.progress | ({} if job.state in HOLDING else CLEARED_PROGRESS)),
        "model_path": facts.find_model(job) if has_succeeded else None,
        "yardsticks": find_yardsticks(job.metrics),
        "warnings": _list_warnings(job) if has_succeeded else [],
    }
    if wait is not None:
        derived |= {"reason": wait[0], "message": wait[1]}
    return {name: getattr(job, name) for name in JobView.model_fields if name not in derived} | derived
