"""Feeder of reports that needs no network: reads the spool files of running jobs."""

from dataclasses import dataclass
from pathlib import Path

import structlog

from dlrm.record import UNREADABLE_REPORT, AttemptDirectory, EventReport, SpoolReader
from service.database import Database
from service.launchers.protocol import Launch
from service.observability.telemetry import Telemetry
from service.reports.ingest import SPOOLED, AttemptEndedError, BadLineError, Stream, ingest
from service.reports.repository import ReportRepository
from service.store.models import Attempt, Job
from service.times import now

log = structlog.get_logger(__name__)

MAX_LINES = 1000
"""Number of lines that one transaction stores at most."""


@dataclass
class _Position:
    reader: SpoolReader
    next_seq: int


class SpoolTail:
    """Reader that ingests new lines of spool files and remembers how far it has read."""

    def __init__(self, database: Database, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._database = database
        self._positions: dict[tuple[str, int, Stream], _Position] = {}

    def ingest_new_lines(self, job: Job, attempt: Attempt, launch: Launch) -> None:
        """Ingest all new complete lines of an attempt's spool files."""
        directory = launch.run_directory.attempt(launch.attempt)
        for rank in range(job.world_size):
            for stream in SPOOLED:
                self._ingest_stream(job, attempt, directory, rank, stream)

    def forget(self, attempt: Attempt) -> None:
        """Drop the positions of an attempt that has ended."""
        self._positions = {name: position for name, position in self._positions.items() if name[0] != attempt.id}

    def _ingest_stream(
        self, job: Job, attempt: Attempt, directory: AttemptDirectory, rank: int, stream: Stream
    ) -> None:
        path = directory.spool_file(rank, stream)
        if not path.exists():
            return
        name = (attempt.id, rank, stream)
        position = self._positions.pop(name, None) or self._open(path, attempt, rank, stream)
        while lines := position.reader.read(MAX_LINES):
            try:
                self._ingest_lines(job, attempt, rank, stream, position.next_seq, lines)
            except AttemptEndedError as error:
                log.info("late_reports", job=job.id, attempt=attempt.number, rank=rank, stream=stream, why=str(error))
                return
            position.next_seq += len(lines)
        # Kept only after success: after an error the next call reads the position from the database again.
        self._positions[name] = position

    def _open(self, path: Path, attempt: Attempt, rank: int, stream: Stream) -> _Position:
        with self._database.read() as session:
            acknowledged_seq = ReportRepository(session).get_acknowledged_seq(attempt.id, rank, stream)
        return _Position(SpoolReader(path, acknowledged_seq), acknowledged_seq + 1)

    def _ingest_lines(
        self, job: Job, attempt: Attempt, rank: int, stream: Stream, first_seq: int, lines: list[bytes]
    ) -> None:
        """Ingest `lines`; replace each invalid line by an event that says so."""
        while True:
            try:
                with self._telemetry.ingest("spool", lines), self._database.write() as session:
                    ingest(session, attempt, rank, stream, first_seq, lines)
            except BadLineError as error:
                seq = first_seq + error.index
                log.warning("bad_report", job=job.id, attempt=attempt.number, rank=rank, stream=stream, seq=seq)
                lines[error.index] = _make_unreadable_event(stream, seq, str(error))
            else:
                return


def _make_unreadable_event(stream: Stream, seq: int, message: str) -> bytes:
    report = EventReport(
        seq=seq,
        time=now().timestamp(),
        name=UNREADABLE_REPORT,
        message=f"line {seq} of the {stream} stream is not a report: {message}",
    )
    return report.model_dump_json().encode()
