"""Queries of the logs of jobs."""

from sqlalchemy.orm import Session

from dlrm.config import FieldError
from service.database import Database
from service.http.problems import invalid_request, not_found
from service.jobs.attempt_repository import ACTIVE_STATES, AttemptRepository
from service.jobs.models import Attempt, Job
from service.jobs.run_facts import RunFacts
from service.jobs.visibility import get_visible_job
from service.keys.principal import Principal
from service.launchers.protocol import LogName, LogRange
from service.reports.service import check_rank
from service.schemas import LogPart


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
