"""Parts of logs, and lines of them that contain a text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from sqlalchemy.orm import Session

from dlrm.config import FieldError
from service.access.principal import Principal
from service.access.ranks import check_rank
from service.access.visibility import get_visible_job
from service.database import Database
from service.http.problems import invalid_request, not_found
from service.launchers.log_files import LogText
from service.launchers.protocol import LogName, LogRange
from service.parts import depend_on
from service.schemas import LogMatch, LogMatches, LogPart
from service.store.attempt_repository import ACTIVE_STATES, AttemptRepository
from service.store.models import Attempt, Job
from service.store.run_facts import RunFacts

MAX_SEARCHED_BYTES = 2**24
"""Bytes of a log that one request searches."""
BLOCK_BYTES = 2**20
"""Bytes of a log that are searched at a time; a longer line is searched in parts."""
MAX_LINE_CHARACTERS = 2000
"""Characters of a found line that are sent."""


@dataclass(frozen=True)
class Search:
    """Search in a log from the byte `offset` on, for at most `limit` lines."""

    text: str
    """Text that lines must contain; the case of ASCII letters does not matter."""
    offset: int
    limit: int


class LogService:
    """Reader of logs. Raises ProblemError if the sender may know of no such job, attempt or rank."""

    def __init__(self, database: Database, facts: RunFacts) -> None:
        self._database = database
        self._facts = facts

    def read(
        self, job_id: str, principal: Principal, attempt_number: int | None, name: LogName, part: LogRange
    ) -> LogPart:
        """Read a part of a log of the given attempt; None means the last one."""
        job, attempt = self._find(job_id, principal, attempt_number, name)
        if attempt is None:
            # The job has not started yet, so nothing was written.
            return LogPart(attempt=1, rank=name.source, text="", next_offset=0, complete=job.finished_at is not None)
        log_part = self._facts.read_log(job, attempt, name, part)
        return LogPart(
            attempt=attempt.number,
            rank=name.source,
            text=log_part.text,
            offset=log_part.offset,
            next_offset=log_part.next_offset,
            complete=log_part.is_at_end and attempt.state not in ACTIVE_STATES,
        )

    def search(
        self, job_id: str, principal: Principal, attempt_number: int | None, name: LogName, search: Search
    ) -> LogMatches:
        """Find lines of a log of the given attempt; None means the last one.

        A request searches at most MAX_SEARCHED_BYTES, so that there may be more even if it finds nothing.
        """
        job, attempt = self._find(job_id, principal, attempt_number, name)
        if attempt is None:
            is_over = job.finished_at is not None
            return LogMatches(attempt=1, rank=name.source, items=[], next_offset=0, complete=is_over)
        has_ended = attempt.state not in ACTIVE_STATES
        with self._facts.open_log(job, attempt, name) as log:
            matches, next_offset = search_log(log, search, has_ended=has_ended)
            is_complete = has_ended and next_offset >= log.end
        return LogMatches(
            attempt=attempt.number, rank=name.source, items=matches, next_offset=next_offset, complete=is_complete
        )

    def _find(
        self, job_id: str, principal: Principal, attempt_number: int | None, name: LogName
    ) -> tuple[Job, Attempt | None]:
        """Find the attempt that a log is of; None before the first attempt."""
        with self._database.read() as session:
            job = get_visible_job(session, job_id, principal)
            if name.source != "launch":
                check_rank(job.world_size, name.source)
                if name.node:
                    raise invalid_request([FieldError("node", "is for the logs of launch processes", "rank=launch")])
            return job, _find_attempt(session, job, attempt_number)


Logs = Annotated[LogService, depend_on(LogService)]
"""Parameter type of an endpoint that needs the service."""


def _find_attempt(session: Session, job: Job, number: int | None) -> Attempt | None:
    """Return the attempt with this number, or the last one if `number` is None; None before the first attempt.

    Raises ProblemError if there is no attempt with this number.
    """
    attempts = AttemptRepository(session)
    if number is None or job.num_attempts == 0 == number - 1:
        return attempts.get_by_number(job.id, job.num_attempts)
    attempt = attempts.get_by_number(job.id, number)
    if attempt is None:
        raise not_found("attempt", f"{number} of {job.id}")
    return attempt


def search_log(log: LogText, search: Search, *, has_ended: bool) -> tuple[list[LogMatch], int]:
    """Find lines of a log that contain a text; return them with the offset from which to search on.

    has_ended: whether a last line without its end is whole.
    """
    wanted = search.text.encode().lower()
    start = min(max(search.offset, log.start), log.end)
    limit = min(log.end, start + MAX_SEARCHED_BYTES)
    matches: list[LogMatch] = []
    while start < limit and len(matches) < search.limit:
        block = log.read(start, min(BLOCK_BYTES, log.end - start))
        is_last = start + len(block) >= log.end
        whole = len(block) if (is_last and has_ended) else block.rfind(b"\n") + 1
        if not whole and (is_last or not block):
            break
        block = block[: whole or len(block)]
        for line_start, line in _find_lines(block, wanted):
            if len(matches) == search.limit:
                return matches, start + line_start
            text = line.decode("utf-8", "replace")[:MAX_LINE_CHARACTERS]
            matches.append(LogMatch(offset=start + line_start, text=text))
        start += len(block)
    return matches, start


def _find_lines(block: bytes, wanted: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a block that contain `wanted`, in lower case, each with its offset in the block."""
    lowered = block.lower()
    found = lowered.find(wanted)
    while found >= 0:
        start = block.rfind(b"\n", 0, found) + 1
        end = block.find(b"\n", found)
        end = len(block) if end < 0 else end
        yield start, block[start:end]
        found = lowered.find(wanted, end + 1)
