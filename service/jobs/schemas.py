"""Jobs, events, attempts and checkpoints as the API returns them."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic_core import to_json
from sqlalchemy.orm import Session

from dlrm.config import MAX_LABELS, MAX_PRIORITY, LabelValue, Name
from dlrm.record import EvaluationSource, find_yardsticks, list_quality_warnings
from service import schemas
from service.http.body import Body
from service.jobs.batch_stages import list_batch_stages
from service.jobs.forecast import forecast_end
from service.queue.place import Wait
from service.reports.progress import present_progress
from service.schemas import BriefProgress, QueuePlace
from service.store.job_repository import JobRepository
from service.store.job_rows import JobRow, cut_message
from service.store.models import Job, JobDocument
from service.store.run_facts import Checkpoint, RunFacts
from service.store.states import AttemptState, JobState


class JobView(schemas.Job, frozen=True):
    """A job as lists show it."""

    state: JobState
    """State of the job."""


_ROW_FIELDS = tuple(name for name in JobView.model_fields if name not in ("has_warnings", "progress"))
_PROGRESS_FIELDS = tuple(BriefProgress.model_fields)


def dump_rows(rows: Sequence[JobRow], waits: Mapping[str, Wait]) -> list[dict[str, Any]]:
    """Return rows of jobs as JSON values. waits: as in `dump_page`."""
    return json.loads(to_json([_make_item(row, waits.get(row.id)) for row in rows], inf_nan_mode="null"))


def dump_page(rows: Sequence[JobRow], waits: Mapping[str, Wait], *, next_cursor: str | None) -> bytes:
    """Return the JSON of a `Page[JobView]`, without checks of what the database has been given.

    waits: by job id, what jobs wait for, if that is not in their rows.
    """
    items = [_make_item(row, waits.get(row.id)) for row in rows]
    return to_json({"items": items, "next_cursor": next_cursor}, inf_nan_mode="null")


def _make_item(row: JobRow, wait: Wait | None) -> dict[str, Any]:
    item = {name: getattr(row, name) for name in _ROW_FIELDS}
    item["state"] = JobState(row.state)
    if wait is not None:
        item["reason"], item["message"] = wait
    item["message"] = cut_message(item["message"])
    item["has_warnings"] = row.has_warnings and row.state == JobState.SUCCEEDED
    progress = present_progress(item["state"], row.progress)
    item["progress"] = {name: progress.get(name) for name in _PROGRESS_FIELDS}
    return item


class JobDetail(schemas.JobDetails, frozen=True):
    """A job with its document."""

    state: JobState
    """State of the job."""

    @classmethod
    def read(
        cls, session: Session, job: Job, facts: RunFacts, wait: Wait | None = None, queue: QueuePlace | None = None
    ) -> "JobDetail":
        """Build the schema of `job`, a row of `session`. wait: what the job waits for, if that is not in its row."""
        jobs = JobRepository(session)
        document = jobs.get_document(job.id)
        has_succeeded = job.state == JobState.SUCCEEDED
        warnings = _list_warnings(document) if has_succeeded else []
        details: dict[str, Any] = {
            "labels": jobs.get_labels(job.id),
            "progress": present_progress(JobState(job.state), job.progress),
            "metrics": document.metrics,
            "yardsticks": find_yardsticks(document.metrics),
            "warnings": warnings,
            "has_warnings": bool(warnings),
            "model_path": facts.find_model(job) if has_succeeded else None,
            "files_at": facts.describe_place(job),
            "are_files_seen": facts.shares_files(job),
            "image": facts.find_image(job),
            "spec": document.spec,
            "derived": document.resolved["derived"],
            "batch_stages": list_batch_stages(document.spec, document.resolved, job.progress.get("global_size")),
            "forecast": forecast_end(session, job, document.resolved),
            "queue": queue,
        }
        if wait is not None:
            details |= {"reason": wait[0], "message": wait[1]}
        row = {name: getattr(job, name) for name in cls.model_fields if name not in details}
        return cls.model_validate(row | details)


class DeletedJobView(JobDetail, schemas.DeletedJob, frozen=True):
    """A job that was deleted."""


class JobChanges(Body):
    """Changes of a job."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"labels": {"team": "ads", "draft": None}, "priority": 10}]}
    )

    labels: Annotated[dict[Name, LabelValue | None], Field(max_length=2 * MAX_LABELS)] | None = None
    """Labels to set, by name; one that is null is removed, and others stay."""
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY, strict=True)] | None = None
    """Priority, while the job has not ended; null leaves it as it is."""


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


def _list_warnings(document: JobDocument) -> list[str]:
    data = document.spec["data"]
    source = EvaluationSource.of_job(data["format"], data["eval"])
    return [warning.message for warning in list_quality_warnings(document.metrics, source)]
