"""Ingestion of spool file lines: each line is stored once, however often and by whichever feeder it is delivered."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session

from dlrm.config import BatchConfig, DerivedNumber
from dlrm.record import (
    CHECKPOINT_SAVED,
    CHECKPOINTS_REMOVED,
    DECIDED,
    MODEL_SAVED,
    UPLOADED,
    AttemptEnd,
    CheckpointReport,
    EvaluationReport,
    EventReport,
    ModelReport,
    ProgressReport,
    RemovedCheckpoints,
    Report,
    StartReport,
    StepReport,
    parse_report,
)
from service.http.paging import MAX_SERIAL
from service.reasons import TRAINER
from service.reports.progress import ReportedProgress
from service.reports.repository import ReportRepository
from service.store.attempt_repository import AttemptRepository, CheckpointRepository
from service.store.events import add_event
from service.store.job_repository import JobRepository
from service.store.log_parts import LAUNCH, LOG, LogPartRepository
from service.store.models import Attempt, Event, Job


class Stream(StrEnum):
    METRICS = "metrics"
    EVENTS = "events"
    LOG = LOG
    """Lines of the log of a rank."""
    LAUNCH = LAUNCH
    """Lines of the log of a node's launch process, whose rank is the first one of the node."""
    OUTCOME = "outcome"
    """End of the attempt: one line, of rank 0."""


SPOOLED = (Stream.METRICS, Stream.EVENTS)
"""Streams that are spool files in the run directory; the others are pushed where the service does not see that."""


KINDS = ("step", "evaluation")
"""Kinds of reports that are metrics."""


_MAX_DERIVED = 100


class _Decided(BaseModel):
    """Details of the event by which a run reports what it decided once it knew its rows."""

    derived: list[DerivedNumber] = []
    batch: dict[str, Any] = {}
    """Fields of the batch; empty in the events of earlier versions."""


class GapError(Exception):
    """Lines missing before the delivered ones."""

    def __init__(self, acknowledged_seq: int) -> None:
        super().__init__(f"expected line {acknowledged_seq + 1}")
        self.acknowledged_seq = acknowledged_seq


class AttemptEndedError(Exception):
    """End of the attempt whose reports these are: they are closed."""


class BadLineError(Exception):
    """A line that is not a valid report."""

    def __init__(self, index: int, message: str) -> None:
        """Keep `index`, the position of the line among the delivered ones, counted from 0."""
        super().__init__(message)
        self.index = index


def ingest(
    session: Session, attempt: Attempt, rank: int, stream: Stream, first_seq: int, lines: Sequence[str | bytes]
) -> int:
    """Store lines `first_seq`, `first_seq + 1`, … of a stream, except those already known.

    Needs a transaction of its own, so that all lines are stored or none. Returns the number of the last known line.
    Raises AttemptEndedError if the attempt or its job has ended, GapError if lines before `first_seq` are
    missing, and BadLineError if a line is not valid in its stream.
    """
    job = _lock_open_job(session, attempt)
    position = ReportRepository(session).lock_position(attempt.id, rank, stream)
    num_known = position.acknowledged_seq - (first_seq - 1)
    if num_known < 0:
        raise GapError(position.acknowledged_seq)
    new = [(index, first_seq + index, line) for index, line in enumerate(lines) if index >= num_known]
    if not new:
        return position.acknowledged_seq
    if stream in (Stream.LOG, Stream.LAUNCH):
        texts = [line if isinstance(line, str) else line.decode("utf-8", "replace") for _, _, line in new]
        LogPartRepository(session).add_lines(attempt.id, rank, stream, texts)
    elif stream is Stream.OUTCOME:
        _store_end(session, attempt, rank, new)
    else:
        _store_reports(session, job, attempt, rank, stream, [_parse(line, seq, index) for index, seq, line in new])
    position.acknowledged_seq += len(new)
    return position.acknowledged_seq


def _store_end(session: Session, attempt: Attempt, rank: int, new: Sequence[tuple[int, int, str | bytes]]) -> None:
    """Store the end of an attempt, the only line of its stream. Raises BadLineError.

    new: index, number and text of each line.
    """
    for index, seq, line in new:
        if seq != 1 or rank != 0:
            raise BadLineError(index, "the end of an attempt is one line, of rank 0")
        try:
            end = AttemptEnd.model_validate_json(line)
        except ValidationError as error:
            raise BadLineError(index, _describe_fault(error)) from None
        AttemptRepository(session).update(attempt.id, reported_end=end.model_dump(mode="json"))


def _store_reports(
    session: Session, job: Job, attempt: Attempt, rank: int, stream: Stream, reports: Sequence[Report]
) -> None:
    """Store reports, and what follows from them for the job and its attempt."""
    repository, jobs = ReportRepository(session), JobRepository(session)
    progress = ReportedProgress.model_validate(job.progress)
    metrics: list[dict[str, Any]] = []
    for report in reports:
        if isinstance(report, EventReport):
            _store_event(session, job, attempt, rank, report)
            continue
        if isinstance(report, StartReport):
            AttemptRepository(session).update(attempt.id, start_step=report.step, evaluated_step=report.evaluated_step)
            # The last reports of each kind may be among those that were just delivered.
            repository.add_metrics(metrics)
            metrics = []
            progress = progress.apply_start(report, *(repository.get_last_report(job.id, kind) for kind in KINDS))
            continue
        progress = progress.apply(report)
        if not isinstance(report, ProgressReport):
            metrics.append(_make_metric(job, attempt, rank, stream, report))
    repository.add_metrics(metrics)
    if attempt.number == job.num_attempts:
        jobs.update(job.id, progress=progress.model_dump())


def _store_event(session: Session, job: Job, attempt: Attempt, rank: int, report: EventReport) -> None:
    """Store an event, unless it is about removed checkpoints: there is such an event for every checkpoint."""
    jobs = JobRepository(session)
    if report.name != CHECKPOINTS_REMOVED:
        add_event(session, _make_event(job, attempt, rank, report))
    if rank == 0:
        record_files(session, job, attempt, report)
        if report.name == DECIDED:
            _record_decided(jobs, job, report)


def check_is_open(session: Session, attempt: Attempt) -> None:
    """Raise AttemptEndedError if an attempt or its job has ended, as the database says now."""
    if not AttemptRepository(session).is_open(attempt.id):
        raise AttemptEndedError(f"attempt {attempt.number} of {attempt.job_id} has ended: its reports are closed")


def _lock_open_job(session: Session, attempt: Attempt) -> Job:
    """Lock and return the job of an attempt. Raises AttemptEndedError if the attempt or the job has ended.

    Whoever records an end locks the job first: an end that is being recorded is awaited here, and then seen; one that
    comes later waits until these lines are stored.
    """
    try:
        job = JobRepository(session).lock(attempt.job_id)
    except NoResultFound:
        raise AttemptEndedError(f"{attempt.job_id} was deleted") from None
    check_is_open(session, attempt)
    return job


def _parse(line: str | bytes, seq: int, index: int) -> Report:
    try:
        report = parse_report(line)
        datetime.fromtimestamp(report.time, UTC)
    except ValidationError as error:
        raise BadLineError(index, _describe_fault(error)) from None
    except (OverflowError, ValueError, OSError):
        raise BadLineError(index, "time: is not a time in seconds since the epoch") from None
    if report.seq != seq:
        raise BadLineError(index, f"seq: is {report.seq}, but this line is number {seq}")
    for field in ("step", "evaluated_step"):
        if not 0 <= getattr(report, field, 0) <= MAX_SERIAL:
            raise BadLineError(index, f"{field}: is not a number of batches (valid: 0 to {MAX_SERIAL})")
    return report


def _describe_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field}: {first['msg']}" if field else first["msg"]


def _make_event(job: Job, attempt: Attempt, rank: int, report: EventReport) -> Event:
    return Event(
        job_id=job.id,
        attempt=attempt.number,
        time=datetime.fromtimestamp(report.time, UTC),
        actor=TRAINER,
        kind="report",
        message=_replace_nul(report.message),
        name=_replace_nul(report.name),
        rank=rank,
        details=_to_json(report)["details"],
    )


def _record_decided(jobs: JobRepository, job: Job, report: EventReport) -> None:
    """Record what the run decided, and the numbers that it derived; nothing if they are not as they should be."""
    try:
        decided = _Decided.model_validate(report.details)
        batch = BatchConfig.model_validate({**job.resolved["job"]["batch"], **decided.batch})
    except ValidationError:
        return
    if decided.derived:
        derived = [number.model_dump(mode="json") for number in decided.derived[:_MAX_DERIVED]]
        jobs.set_decided(job, derived, batch.model_dump(mode="json"))


def _make_metric(
    job: Job, attempt: Attempt, rank: int, stream: Stream, report: StepReport | EvaluationReport
) -> dict[str, Any]:
    """Return the columns of a report's row in `metrics`."""
    return {
        "job_id": job.id,
        "attempt_id": attempt.id,
        "attempt": attempt.number,
        "rank": rank,
        "stream": stream.value,
        "seq": report.seq,
        "kind": report.kind,
        "step": report.step,
        "report": report.model_dump_json(),
    }


def _to_json(report: Report) -> dict[str, Any]:
    """Convert a report to JSON values; a number that is not finite becomes null."""
    return json.loads(report.model_dump_json())


def _replace_nul(text: str) -> str:
    """Replace NUL characters, which PostgreSQL does not store in text."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def record_files(session: Session, job: Job, attempt: Attempt, report: EventReport) -> None:
    """Record the checkpoints and the model that an event reports.

    Nothing is recorded if the event lacks a needed detail, as for runs whose directory the service sees.
    """
    if report.name in (CHECKPOINT_SAVED, UPLOADED) and (saved := report.parse_details(CheckpointReport)) is not None:
        CheckpointRepository(session).put(job.id, attempt.number, saved)
    if report.name == CHECKPOINTS_REMOVED and (removed := report.parse_details(RemovedCheckpoints)) is not None:
        CheckpointRepository(session).remove(job.id, removed.steps)
    if report.name in (MODEL_SAVED, UPLOADED) and (model := report.parse_details(ModelReport)) is not None:
        JobRepository(session).update(job.id, model_path=model.path)
