"""Ingestion of pushed reports; queries of metrics."""

import secrets
from typing import Annotated

from sqlalchemy.orm import Session

from dlrm.config import FieldError
from service.access.principal import Principal
from service.access.ranks import check_rank
from service.access.secret import hash_secret
from service.access.visibility import get_visible_job
from service.database import Database
from service.http.problems import ProblemError, conflict, invalid_request, unauthenticated
from service.ids import is_id
from service.observability.telemetry import Telemetry
from service.parts import depend_on
from service.reports.ingest import AttemptEndedError, BadLineError, GapError, Stream, check_is_open, ingest
from service.reports.pages import MetricQuery, read_page
from service.reports.repository import ReportRepository, Sender
from service.reports.schemas import NewReports
from service.schemas import MetricPage


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
                sender = _authenticate(session, attempt_id, token)
                check_rank(sender.world_size, reports.rank)
                return ingest(session, sender, reports.rank, reports.stream, reports.first_seq, reports.lines)
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

    def read_metrics(self, job_id: str, principal: Principal, query: MetricQuery) -> bytes:
        """Return the JSON of the `MetricPage` that `query` selects.

        Raises ProblemError if there is no such job that `principal` may know of. Reports were checked when they came,
        and are not checked again: there may be ten thousand of them.
        """
        with self._database.read() as session:
            get_visible_job(session, job_id, principal)
            reports = ReportRepository(session)
            page = read_page(session, job_id, query)
            rest = MetricPage(
                items=[],
                starts=reports.list_starts(job_id),
                next_cursor=page.next_cursor,
                are_steps_removed=reports.are_steps_removed(job_id),
            )
        return b'{"items":[' + page.items + b"]," + rest.model_dump_json(exclude={"items"}).encode()[1:]


Reports = Annotated[ReportService, depend_on(ReportService)]
"""Parameter type of an endpoint that needs the service."""


def _authenticate(session: Session, attempt_id: str, token: str | None) -> Sender:
    """Return the sender that the token is for. Raises ProblemError if there is none.

    An unknown attempt takes as long as a wrong token, and has the same answer.
    """
    sender = ReportRepository(session).find_sender(attempt_id) if is_id(attempt_id, "att") else None
    is_right = secrets.compare_digest(sender.token_hash if sender else "", hash_secret(token or ""))
    if sender is None or not is_right:
        raise unauthenticated("the token is not that of this attempt")
    return sender
