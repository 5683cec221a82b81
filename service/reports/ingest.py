"""Ingestion of spool file lines: each line is stored once, however often and by whichever feeder it is delivered."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

from pydantic import BaseModel, ValidationError
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
    RemovedCheckpoints,
    Report,
    StartReport,
    StepReport,
    parse_report,
)
from service.reasons import TRAINER
from service.reports.attempt_ranges import METRIC_KINDS
from service.reports.progress import ReportedProgress
from service.reports.repository import LockedJob, ReportRepository, Sender
from service.store.attempt_repository import AttemptRepository, CheckpointRepository
from service.store.events import add_event
from service.store.job_repository import JobRepository
from service.store.log_parts import LAUNCH, LOG, LogPartRepository
from service.store.models import Attempt, Event


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
    session: Session, attempt: Attempt | Sender, rank: int, stream: Stream, first_seq: int, lines: Sequence[str | bytes]
) -> int:
    """Store lines `first_seq`, `first_seq + 1`, … of a stream, except those already known.

    Needs a transaction of its own, so that all lines are stored or none. Returns the number of the last known line.
    Raises AttemptEndedError if the attempt or its job has ended, GapError if lines before `first_seq` are
    missing, and BadLineError if a line is not valid in its stream.
    """
    repository = ReportRepository(session)
    job = _lock_open_job(session, attempt)
    acknowledged_seq = repository.get_acknowledged_seq(attempt.id, rank, stream)
    num_known = acknowledged_seq - (first_seq - 1)
    if num_known < 0:
        raise GapError(acknowledged_seq)
    new = [(index, first_seq + index, line) for index, line in enumerate(lines) if index >= num_known]
    if not new:
        return acknowledged_seq
    if stream in (Stream.LOG, Stream.LAUNCH):
        texts = [line if isinstance(line, str) else line.decode("utf-8", "replace") for _, _, line in new]
        LogPartRepository(session).add_lines(attempt.id, rank, stream, texts)
    elif stream is Stream.OUTCOME:
        _store_end(session, attempt, rank, new)
    else:
        _store_reports(session, job, attempt, rank, [_parse(line, seq, index) for index, seq, line in new])
    acknowledged_seq += len(new)
    repository.set_acknowledged_seq(attempt.id, rank, stream, acknowledged_seq)
    return acknowledged_seq


def _store_end(
    session: Session, attempt: Attempt | Sender, rank: int, new: Sequence[tuple[int, int, str | bytes]]
) -> None:
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
    session: Session, job: LockedJob, attempt: Attempt | Sender, rank: int, reports: Sequence[Report]
) -> None:
    """Store reports, and what follows from them for the job and its attempt."""
    repository, job_id, number = ReportRepository(session), attempt.job_id, attempt.number
    progress = ReportedProgress.model_validate(job.progress)
    steps: list[StepReport] = []
    evaluations: list[EvaluationReport] = []
    for kind, group in groupby(reports, type):
        same: list[Any] = list(group)
        if kind is StepReport:
            steps += same
            progress = progress.apply_steps(same)
            continue
        for report in same:
            if kind is EventReport:
                _store_event(session, attempt, rank, report)
            elif kind is StartReport:
                repository.start_attempt(job_id, number, report.step, report.evaluated_step)
                progress = progress.apply_start(report, *(repository.get_last_report(job_id, k) for k in METRIC_KINDS))
            else:
                progress = progress.apply(report)
        if kind is EvaluationReport:
            evaluations += same
    repository.add_steps(job_id, number, steps)
    repository.add_evaluations(job_id, number, evaluations)
    if number == job.num_attempts:
        repository.set_progress(job_id, progress.model_dump())


def _store_event(session: Session, attempt: Attempt | Sender, rank: int, report: EventReport) -> None:
    """Store an event, unless it is about removed checkpoints: there is such an event for every checkpoint."""
    if report.name != CHECKPOINTS_REMOVED:
        add_event(session, _make_event(attempt, rank, report))
    if rank == 0:
        record_files(session, attempt, report)
        if report.name == DECIDED:
            _record_decided(JobRepository(session), attempt.job_id, report)


def check_is_open(session: Session, attempt: Attempt | Sender) -> None:
    """Raise AttemptEndedError if an attempt or its job has ended, as the database says now."""
    if not AttemptRepository(session).is_open(attempt.id):
        raise AttemptEndedError(f"attempt {attempt.number} of {attempt.job_id} has ended: its reports are closed")


def _lock_open_job(session: Session, attempt: Attempt | Sender) -> LockedJob:
    """Lock and return the job of an attempt. Raises AttemptEndedError if the attempt or the job has ended.

    Whoever records an end locks the job first: an end that is being recorded is awaited here, and then seen; one that
    comes later waits until these lines are stored.
    """
    job = ReportRepository(session).lock_job(attempt.job_id)
    if job is None:
        raise AttemptEndedError(f"{attempt.job_id} was deleted")
    check_is_open(session, attempt)
    return job


def _parse(line: str | bytes, seq: int, index: int) -> Report:
    try:
        report = parse_report(line)
    except ValidationError as error:
        raise BadLineError(index, _describe_fault(error)) from None
    if report.seq != seq:
        raise BadLineError(index, f"seq: is {report.seq}, but this line is number {seq}")
    return report


def _describe_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field}: {first['msg']}" if field else first["msg"]


def _make_event(attempt: Attempt | Sender, rank: int, report: EventReport) -> Event:
    return Event(
        job_id=attempt.job_id,
        attempt=attempt.number,
        time=datetime.fromtimestamp(report.time, UTC),
        actor=TRAINER,
        kind="report",
        message=report.message,
        name=report.name,
        rank=rank,
        details=report.details,
    )


def _record_decided(jobs: JobRepository, job_id: str, report: EventReport) -> None:
    """Record what the run decided, and the numbers that it derived; nothing if they are not as they should be."""
    job = jobs.lock(job_id)
    try:
        decided = _Decided.model_validate(report.details)
        batch = BatchConfig.model_validate({**jobs.get_document(job.id).resolved["job"]["batch"], **decided.batch})
    except ValidationError:
        return
    if decided.derived:
        derived = [number.model_dump(mode="json") for number in decided.derived[:_MAX_DERIVED]]
        jobs.set_decided(job.id, derived, batch.model_dump(mode="json"))


def record_files(session: Session, attempt: Attempt | Sender, report: EventReport) -> None:
    """Record the checkpoints and the model that an event reports.

    Nothing is recorded if the event lacks a needed detail, as for runs whose directory the service sees.
    """
    if report.name in (CHECKPOINT_SAVED, UPLOADED) and (saved := report.parse_details(CheckpointReport)) is not None:
        CheckpointRepository(session).put(attempt.job_id, attempt.number, saved)
    if report.name == CHECKPOINTS_REMOVED and (removed := report.parse_details(RemovedCheckpoints)) is not None:
        CheckpointRepository(session).remove(attempt.job_id, removed.steps)
    if report.name in (MODEL_SAVED, UPLOADED) and (model := report.parse_details(ModelReport)) is not None:
        JobRepository(session).update(attempt.job_id, model_path=model.path)
