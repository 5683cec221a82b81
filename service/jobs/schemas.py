"""Jobs, events, attempts and checkpoints as the API returns them."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from dlrm.config import MAX_LABELS, MAX_PRIORITY, LabelValue, Name
from dlrm.record import EvaluationSource, find_yardsticks, list_quality_warnings
from service import schemas
from service.http.body import Body
from service.jobs.batch_stages import list_batch_stages
from service.queue.place import Wait
from service.reports.progress import CLEARED_PROGRESS
from service.schemas import Progress, QueuePlace
from service.store.models import Job
from service.store.run_facts import Checkpoint, RunFacts
from service.store.states import HOLDING, AttemptState, JobState


class JobView(schemas.Job, frozen=True):
    """A job without its document, as lists show it."""

    state: JobState
    """State of the job."""

    @classmethod
    def from_job(cls, job: Job, facts: RunFacts, wait: Wait | None = None) -> "JobView":
        """Build the schema. wait: what the job waits for, if that is not in its row."""
        return cls.model_validate(_collect_fields(job, facts, wait))


class JobChanges(Body):
    """Changes of a job."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"labels": {"team": "ads", "draft": None}, "priority": 10}]}
    )

    labels: Annotated[dict[Name, LabelValue | None], Field(max_length=2 * MAX_LABELS)] | None = None
    """Labels to set, by name; one that is null is removed, and others stay."""
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY, strict=True)] | None = None
    """Priority, while the job has not ended; null leaves it as it is."""


class DeletedJobView(JobView, schemas.DeletedJob, frozen=True):
    """A job that was deleted."""


class JobDetail(JobView, schemas.JobDetails, frozen=True):
    """A job with its document."""

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


class EventView(schemas.Event, frozen=True, coerce_numbers_to_str=True):
    """A change of state, or a report of a rank."""

    id: str
    """Number of the event, as text; later events of a job have higher numbers."""
    from_state: JobState | None = None
    """State before the change; None for other kinds."""
    to_state: JobState | None = None
    """State after the change; None for other kinds."""


class AttemptView(schemas.Attempt, frozen=True):
    """One start of a job."""

    state: AttemptState
    """State of the attempt."""


class AttemptList(schemas.Answer, frozen=True):
    """Attempts of a job."""

    items: list[AttemptView]
    """Attempts, oldest first."""


class CheckpointView(schemas.Checkpoint, frozen=True):
    """A complete checkpoint."""

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, num_run_samples: int | None) -> "CheckpointView":
        """Build the schema. num_run_samples: samples of the whole run; None: not known, steps stand for them."""
        if num_run_samples:
            done_fraction = checkpoint.num_samples / num_run_samples
        else:
            done_fraction = checkpoint.step / max(checkpoint.num_steps, 1)
        return cls.model_validate(vars(checkpoint) | {"done_fraction": done_fraction})


class CheckpointList(schemas.Answer, frozen=True):
    """Checkpoints of a job."""

    items: list[CheckpointView]
    """Checkpoints, newest first."""


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
