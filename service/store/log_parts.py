"""Logs of attempts whose run directory the service does not see, stored as they were pushed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from dlrm.record import RunDirectory
from service.database.storable import make_storable
from service.launchers.log_files import LogText
from service.store.models import Attempt, StoredLogPart, StreamPosition

LOG, LAUNCH = "log", "launch"
"""Streams of the logs of ranks, and of launch processes."""
MAX_LOG_BYTES = 2**22
"""Bytes at the end of each log that are kept at least; what is before them is removed as lines are added."""


@dataclass(frozen=True)
class StoredLogName:
    """A log in the database, with what is left of it at a time: its bytes from `start` to before `end`."""

    attempt_id: str
    rank: int
    stream: str
    start: int
    end: int

    @property
    def num_bytes(self) -> int:
        return self.end - self.start


class LogPartRepository:
    """SQL statements on the stored parts of logs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add_lines(self, attempt_id: str, rank: int, stream: str, lines: Sequence[str]) -> None:
        """Add lines at the end of a log, and remove what is then beyond its limit.

        The stream must be locked, so that nobody else adds lines meanwhile.
        """
        text = "".join(f"{make_storable(line)}\n" for line in lines)
        start, num_bytes = self.open(attempt_id, rank, stream).end, len(text.encode())
        self._session.add(
            StoredLogPart(
                attempt_id=attempt_id, rank=rank, stream=stream, start_byte=start, num_bytes=num_bytes, text=text
            )
        )
        self._session.flush()
        limit = start + num_bytes - MAX_LOG_BYTES
        # The first condition is one that the index helps with.
        is_beyond = (StoredLogPart.start_byte < limit, StoredLogPart.start_byte + StoredLogPart.num_bytes <= limit)
        self._session.execute(
            delete(StoredLogPart)
            .where(*_is_of(attempt_id, rank, stream), *is_beyond)
            .execution_options(synchronize_session=False)
        )

    def open(self, attempt_id: str, rank: int, stream: str) -> "StoredLog":
        """Return a log, which has no bytes if nothing was pushed."""
        parts = select(StoredLogPart.start_byte, StoredLogPart.num_bytes).where(*_is_of(attempt_id, rank, stream))
        first = self._session.execute(parts.order_by(StoredLogPart.start_byte).limit(1)).one_or_none()
        last = self._session.execute(parts.order_by(StoredLogPart.start_byte.desc()).limit(1)).one_or_none()
        start, end = first.start_byte if first else 0, last.start_byte + last.num_bytes if last else 0
        return StoredLog(self._session, attempt_id, rank, stream, start, end)

    def list_by_job(self, job_id: str) -> dict[str, StoredLogName]:
        """Return all logs of a job by their names: the paths that their files have in a run directory."""
        own = (
            StoredLogPart.attempt_id == StreamPosition.attempt_id,
            StoredLogPart.rank == StreamPosition.rank,
            StoredLogPart.stream == StreamPosition.stream,
        )
        part_end = select(StoredLogPart.start_byte + StoredLogPart.num_bytes).where(*own)
        start = select(func.min(StoredLogPart.start_byte)).where(*own).scalar_subquery()
        end = part_end.order_by(StoredLogPart.start_byte.desc()).limit(1).scalar_subquery()
        rows = self._session.execute(
            select(Attempt.number, Attempt.id, StreamPosition.rank, StreamPosition.stream, start, end)
            .join(StreamPosition, StreamPosition.attempt_id == Attempt.id)
            .where(Attempt.job_id == job_id, StreamPosition.stream.in_((LOG, LAUNCH)))
            .order_by(Attempt.number, StreamPosition.stream, StreamPosition.rank)
        )
        nodes: dict[int, count[int]] = {}
        logs: dict[str, StoredLogName] = {}
        for number, attempt_id, rank, stream, first, after in rows:
            directory = RunDirectory(Path()).attempt(number)
            if stream == LOG:
                path = directory.rank_log(rank)
            else:
                node = next(nodes.setdefault(number, count()))
                path = directory.find_launch_log(node)
            logs[path.as_posix()] = StoredLogName(attempt_id, rank, stream, first or 0, after or 0)
        return logs

    def find_launch_rank(self, attempt_id: str, node: int) -> int | None:
        """Return the first rank of a machine, under which its launch process pushes; None if it has not pushed yet.

        node: number of the machine among the ones that have pushed, in the order of their ranks.
        """
        pushed = (StreamPosition.attempt_id == attempt_id, StreamPosition.stream == LAUNCH)
        query = select(StreamPosition.rank).where(*pushed).order_by(StreamPosition.rank)
        return self._session.scalar(query.offset(node).limit(1))

    def count_lines(self, job_id: str, attempt: int) -> int:
        """Count the lines that the processes of an attempt have pushed."""
        lines = select(func.coalesce(func.sum(StreamPosition.acknowledged_seq), 0))
        is_own = (Attempt.job_id == job_id, Attempt.number == attempt, StreamPosition.stream.in_((LOG, LAUNCH)))
        return self._session.scalars(lines.join(Attempt, Attempt.id == StreamPosition.attempt_id).where(*is_own)).one()


class StoredLog(LogText):
    """A log in the database; its beginning may be gone."""

    def __init__(self, session: Session, attempt_id: str, rank: int, stream: str, start: int, end: int) -> None:
        self._session = session
        self._name = (attempt_id, rank, stream)
        self.start, self.end = start, end

    def read(self, start: int, num_bytes: int) -> bytes:
        after, is_own = start + num_bytes, _is_of(*self._name)
        first_start = select(func.max(StoredLogPart.start_byte)).where(*is_own, StoredLogPart.start_byte <= start)
        parts = self._session.execute(
            select(StoredLogPart.start_byte, StoredLogPart.text)
            .where(*is_own, StoredLogPart.start_byte < after)
            .where(StoredLogPart.start_byte >= first_start.scalar_subquery())
            .order_by(StoredLogPart.start_byte)
        ).all()
        if not parts:
            return b""
        content = b"".join(text.encode() for _, text in parts)
        first = parts[0].start_byte
        return content[max(0, start - first) : after - first]


def _is_of(attempt_id: str, rank: int, stream: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a part belongs to a log."""
    return (
        StoredLogPart.attempt_id == attempt_id,
        StoredLogPart.rank == rank,
        StoredLogPart.stream == stream,
    )
