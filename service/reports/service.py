"""Ingestion of pushed reports; queries of metrics and logs."""

import secrets
from typing import Annotated

from sqlalchemy.orm import Session

from dlrm.config import FieldError
from service.access.principal import Principal
from service.access.secret import hash_secret
from service.access.visibility import get_visible_job
from service.database import Database
from service.http.problems import ProblemError, conflict, invalid_request, not_found, unauthenticated
from service.ids import is_id
from service.launchers.protocol import LogName, LogRange
from service.observability.telemetry import Telemetry
from service.parts import depend_on
from service.reports.ingest import AttemptEndedError, BadLineError, GapError, Stream, check_is_open, ingest
from service.reports.repository import MetricQuery, ReportRepository
from service.reports.schemas import NewReports
from service.schemas import AttemptStart, LogPart, MetricPage
from service.store.attempt_repository import ACTIVE_STATES, AttemptRepository
from service.store.job_repository import JobRepository
from service.store.models import Attempt, Job
from service.store.run_facts import RunFacts


class ReportService:
    def __init__(self, database: Database, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._database = database

    def check_token(self, attempt_id: str, token: str | None) -> None:
        """Raise ProblemError if `token` is not the attempt's."""
        with self._database.read() as session:
            _authenticate(session, attempt_id, token)

    def push(self, attempt_id: str, token: str | None, reports: NewReports) -> int:
        """Store pushed lines and return the number of the last known line.

        Raises ProblemError if the token or rank is wrong, the attempt has ended, lines are missing, or a line is not
        a valid report.
        """
        try:
            with self._telemetry.ingest("push", reports.lines), self._database.write() as session:
                attempt = _authenticate(session, attempt_id, token)
                check_rank(JobRepository(session).get_world_size(attempt.job_id), reports.rank)
                return ingest(session, attempt, reports.rank, reports.stream, reports.first_seq, reports.lines)
        except AttemptEndedError as error:
            raise ProblemError("attempt-ended", str(error)) from None
        except GapError as error:
            detail = f"lines are missing: {error}, not {reports.first_seq}"
            raise conflict(detail, acknowledged_seq=error.acknowledged_seq) from None
        except BadLineError as error:
            raise invalid_request([FieldError(f"lines.{error.index}", str(error), "one report as JSON")]) from None

    def get_acknowledged_seq(self, attempt_id: str, token: str | None, rank: int, stream: Stream) -> int:
        """Return the number of the last known line of a stream.

        Raises ProblemError if the token is wrong or the attempt has ended.
        """
        try:
            with self._database.read() as session:
                check_is_open(session, _authenticate(session, attempt_id, token))
                return ReportRepository(session).get_acknowledged_seq(attempt_id, rank, stream)
        except AttemptEndedError as error:
            raise ProblemError("attempt-ended", str(error)) from None

    def read_metrics(self, job_id: str, principal: Principal, query: MetricQuery) -> str:
        """Return the JSON of the `MetricPage` that `query` selects.

        Raises ProblemError if there is no such job that `principal` may know of. Reports are stored as JSON, and are
        neither parsed nor checked again: there may be ten thousand of them.
        """
        with self._database.read() as session:
            get_visible_job(session, job_id, principal)
            reports = ReportRepository(session)
            curve = reports.read_curve(job_id, query)
            starts = [
                AttemptStart(
                    attempt=attempt.number, step=attempt.start_step or 0, evaluated_step=attempt.evaluated_step or 0
                )
                for attempt in reports.list_attempts_with_start(job_id)
            ]
        next_cursor = None if curve.next_after is None else str(curve.next_after)
        rest = MetricPage(items=[], starts=starts, next_cursor=next_cursor).model_dump_json(exclude={"items"})
        return f'{{"items":[{curve.items}],{rest.removeprefix("{")}'


Reports = Annotated[ReportService, depend_on(ReportService)]
"""Parameter type of an endpoint that needs the service."""


def _authenticate(session: Session, attempt_id: str, token: str | None) -> Attempt:
    """Return the attempt that the token is for. Raises ProblemError if there is none.

    An unknown attempt takes as long as a wrong token, and has the same answer.
    """
    attempt = AttemptRepository(session).get(attempt_id) if is_id(attempt_id, "att") else None
    is_right = secrets.compare_digest(attempt.token_hash if attempt else "", hash_secret(token or ""))
    if attempt is None or not is_right:
        raise unauthenticated("the token is not that of this attempt")
    return attempt


def check_rank(world_size: int, rank: int) -> None:
    """Raise ProblemError if a job of `world_size` ranks has no such rank."""
    if rank >= world_size:
        raise invalid_request([FieldError("rank", f"there is no rank {rank}", f"0 to {world_size - 1}")])


class LogService:
    def __init__(self, database: Database, facts: RunFacts) -> None:
        self._database = database
        self._facts = facts

    def read(
        self, job_id: str, principal: Principal, attempt_number: int | None, name: LogName, part: LogRange
    ) -> LogPart:
        """Read a part of a log of the given attempt; None means the last one.

        Raises ProblemError if there is no such job that `principal` may know of, or no such attempt or rank.
        """
        with self._database.read() as session:
            job = get_visible_job(session, job_id, principal)
            if name.source != "launch":
                check_rank(job.world_size, name.source)
                if name.node:
                    raise invalid_request([FieldError("node", "is for the logs of launch processes", "rank=launch")])
            attempt = _find_attempt(session, job, attempt_number)
        if attempt is None:
            # The job has not started yet, so nothing was written.
            return LogPart(attempt=1, rank=name.source, text="", next_offset=0, complete=job.finished_at is not None)
        log_part = self._facts.read_log(job, attempt, name, part)
        return LogPart(
            attempt=attempt.number,
            rank=name.source,
            text=log_part.text,
            next_offset=log_part.next_offset,
            complete=log_part.is_at_end and attempt.state not in ACTIVE_STATES,
        )


Logs = Annotated[LogService, depend_on(LogService)]
"""Parameter type of an endpoint that needs the service."""


def _find_attempt(session: Session, job: Job, number: int | None) -> Attempt | None:
    """Return the attempt with this number, or the last one where `number` is None; None before the first attempt.

    Raises ProblemError if there is no attempt with this number.
    """
    attempts = AttemptRepository(session)
    if number is None or job.num_attempts == 0 == number - 1:
        return attempts.get_by_number(job.id, job.num_attempts)
    attempt = attempts.get_by_number(job.id, number)
    if attempt is None:
        raise not_found("attempt", f"{number} of {job.id}")
    return attempt
