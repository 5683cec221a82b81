"""Ingestion of spool file lines: each line is stored once, however often and by whichever feeder it is delivered."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session

from dlrm.config import DerivedNumber
from dlrm.record import (
    DECIDED,
    EvaluationReport,
    EventReport,
    ProgressReport,
    Report,
    StartReport,
    StepReport,
    parse_report,
)
from service.actors import TRAINER
from service.http.paging import MAX_SERIAL
from service.jobs.attempt_repository import AttemptRepository
from service.jobs.models import Attempt, Event, Job
from service.jobs.repository import JobRepository
from service.reports.progress import ReportedProgress
from service.reports.repository import ReportRepository


class Stream(StrEnum):
    METRICS = "metrics"
    EVENTS = "events"


KINDS = ("step", "evaluation")
"""Kinds of reports that are metrics."""


_DERIVED = TypeAdapter(list[DerivedNumber])
_MAX_DERIVED = 100


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
    Raises AttemptEndedError where the attempt or its job has ended, GapError where lines before `first_seq` are
    missing, and BadLineError where a line is not a valid report.
    """
    repository = ReportRepository(session)
    job = _lock_open_job(session, attempt)
    position = repository.lock_position(attempt.id, rank, stream)
    num_known = position.acknowledged_seq - (first_seq - 1)
    if num_known < 0:
        raise GapError(position.acknowledged_seq)
    reports = [_parse(line, first_seq + index, index) for index, line in enumerate(lines) if index >= num_known]
    if not reports:
        return position.acknowledged_seq
    jobs = JobRepository(session)
    progress = ReportedProgress.model_validate(job.progress)
    metrics: list[dict[str, Any]] = []
    for report in reports:
        if isinstance(report, EventReport):
            jobs.add_event(_make_event(job, attempt, rank, report))
            if report.name == DECIDED and rank == 0:
                _record_derived(jobs, job, report)
            continue
        if isinstance(report, StartReport):
            AttemptRepository(session).set_start(attempt.id, report.step, report.evaluated_step)
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
        jobs.set_progress(job.id, progress.model_dump())
    position.acknowledged_seq += len(reports)
    return position.acknowledged_seq


def check_is_open(session: Session, attempt: Attempt) -> None:
    """Raise AttemptEndedError where an attempt or its job has ended, as the database says now."""
    if not AttemptRepository(session).is_open(attempt.id):
        raise AttemptEndedError(f"attempt {attempt.number} of {attempt.job_id} has ended: its reports are closed")


def _lock_open_job(session: Session, attempt: Attempt) -> Job:
    """Lock and return the job of an attempt. Raises AttemptEndedError where the attempt or the job has ended.

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
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadLineError(index, f"{field}: {first['msg']}" if field else first["msg"]) from None
    except (OverflowError, ValueError, OSError):
        raise BadLineError(index, "time: is not a time in seconds since the epoch") from None
    if report.seq != seq:
        raise BadLineError(index, f"seq: is {report.seq}, but this line is number {seq}")
    for field in ("step", "evaluated_step"):
        if not 0 <= getattr(report, field, 0) <= MAX_SERIAL:
            raise BadLineError(index, f"{field}: is not a number of batches (valid: 0 to {MAX_SERIAL})")
    return report


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


def _record_derived(jobs: JobRepository, job: Job, report: EventReport) -> None:
    """Record the numbers that the run derived from its decisions; nothing where they are not as they should be."""
    try:
        numbers = _DERIVED.validate_python(report.details.get("derived", []))
    except ValidationError:
        return
    if numbers:
        jobs.set_derived(job, [number.model_dump(mode="json") for number in numbers[:_MAX_DERIVED]])


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
