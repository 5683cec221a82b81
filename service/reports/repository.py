"""SQL statements on reports and on the positions of their streams."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic_core import to_json
from sqlalchemy import (
    JSON,
    ColumnElement,
    Table,
    Text,
    TextClause,
    bindparam,
    cast,
    func,
    inspect,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.orm import Session

from dlrm.record import EvaluationReport, StepReport
from service.database.database import note_change
from service.reports.attempt_ranges import AttemptRange, MetricKind, StartedAttempt, list_valid_ranges
from service.reports.rollups import RollupRepository
from service.schemas import AttemptStart
from service.store.metric_tables import EVALUATIONS, ROLLUPS, STEPS
from service.store.models import Attempt, Job, StreamPosition

LARGEST_NUMBER = 1e300
"""Numbers beyond it, and their inverses, are stored as null and 0, so that no sum or mean leaves the range of the
database."""
_TABLES: dict[MetricKind, Table] = {"step": STEPS, "evaluation": EVALUATIONS}
_KEY = ("job_id", "attempt", "step")


@dataclass(frozen=True)
class Sender:
    """Attempt whose ranks push reports, with the hash of their token and the number of ranks of its job."""

    id: str
    job_id: str
    number: int
    token_hash: str
    world_size: int


@dataclass(frozen=True)
class LockedJob:
    """Columns of a locked job: its progress, which reports change, and the number of its attempts."""

    num_attempts: int
    progress: dict[str, Any]


class ReportRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._connection = session.connection()

    def get_acknowledged_seq(self, attempt_id: str, rank: int, stream: str) -> int:
        is_own = tuple_(StreamPosition.attempt_id, StreamPosition.rank, StreamPosition.stream)
        query = select(StreamPosition.acknowledged_seq).where(is_own == (attempt_id, rank, stream))
        return self._connection.scalar(query) or 0

    def find_sender(self, attempt_id: str) -> Sender | None:
        """Return who pushes the reports of an attempt; None if there is no such attempt."""
        columns = (Attempt.id, Attempt.job_id, Attempt.number, Attempt.token_hash, Job.world_size)
        query = select(*columns).join(Job, Job.id == Attempt.job_id).where(Attempt.id == attempt_id)
        row = self._connection.execute(query).one_or_none()
        return None if row is None else Sender(*row)

    def lock_job(self, job_id: str) -> LockedJob | None:
        """Lock the row of a job until the transaction ends; None if there is no such job."""
        query = select(Job.num_attempts, Job.progress).where(Job.id == job_id).with_for_update()
        row = self._connection.execute(query).one_or_none()
        return None if row is None else LockedJob(*row)

    def set_acknowledged_seq(self, attempt_id: str, rank: int, stream: str, seq: int) -> None:
        """Set the position of a stream. The job must be locked, so that nobody else moves it meanwhile."""
        values = {"attempt_id": attempt_id, "rank": rank, "stream": stream, "seq": seq}
        self._connection.execute(_SET_POSITION, values)

    def set_progress(self, job_id: str, progress: dict[str, Any]) -> None:
        note_change(self._session, job_id)
        self._connection.execute(_SET_PROGRESS, {"chosen": job_id, "progress": progress})

    def add_steps(self, job_id: str, attempt: int, reports: Sequence[StepReport]) -> None:
        """Store steps, and bring the levels of the curve up to date. The last report of a step replaces others."""
        if reports:
            self._add(STEPS, job_id, attempt, reports)
            rollups, steps = RollupRepository(self._session), [report.step for report in reports]
            rollups.update(job_id, attempt, min(steps), max(steps), rollups.count_levels(job_id, attempt))

    def add_evaluations(self, job_id: str, attempt: int, reports: Sequence[EvaluationReport]) -> None:
        """Store evaluations. The last report of a step replaces others."""
        if reports:
            self._add(EVALUATIONS, job_id, attempt, reports)

    def start_attempt(self, job_id: str, attempt: int, start_step: int, evaluated_step: int) -> None:
        """Record where an attempt begins: later steps of earlier attempts are void from now on."""
        chosen = update(Attempt).where(Attempt.job_id == job_id, Attempt.number == attempt)
        values = {"start_step": start_step, "evaluated_step": evaluated_step}
        self._session.execute(chosen.values(values))
        for own in self.list_ranges(job_id, "step"):
            if own.attempt < attempt and own.last_step == start_step:
                RollupRepository(self._session).cut(job_id, own)

    def list_attempts(self, job_id: str) -> list[StartedAttempt]:
        """List the attempts of a job, in their order."""
        columns = (Attempt.number, Attempt.start_step, Attempt.evaluated_step)
        query = select(*columns).where(Attempt.job_id == job_id).order_by(Attempt.number)
        return [StartedAttempt(*row) for row in self._connection.execute(query)]

    def list_starts(self, job_id: str) -> list[AttemptStart]:
        """List where the attempts of a job began to train, in their order."""
        return [
            AttemptStart(attempt=number, step=step, evaluated_step=evaluated_step or 0)
            for number, step, evaluated_step in self.list_attempts(job_id)
            if step is not None
        ]

    def list_ranges(self, job_id: str, kind: MetricKind, attempt: int | None = None) -> list[AttemptRange]:
        """List the ranges of valid reports, or everything of one attempt."""
        return [AttemptRange(attempt)] if attempt else list_valid_ranges(self.list_attempts(job_id), kind)

    def get_last_report(self, job_id: str, kind: MetricKind) -> dict[str, Any] | None:
        """Return the columns of the last valid report of one kind; None if absent."""
        table = _TABLES[kind]
        for own in reversed(self.list_ranges(job_id, kind)):
            query = select(table).where(*_is_within(table, job_id, own, 0)).order_by(table.c.step.desc()).limit(1)
            if row := self._connection.execute(query).mappings().first():
                return dict(row)
        return None

    def iterate(
        self, kind: MetricKind, job_id: str, own: AttemptRange, first_step: int, chunk: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the reports of a range from `first_step` on with their attempt, read in chunks of so many rows."""
        table = _TABLES[kind]
        names = ["attempt", *_list_names(table)]
        columns = [table.c[name] for name in names]
        while True:
            query = select(*columns).where(*_is_within(table, job_id, own, first_step)).order_by(table.c.step)
            rows = self._connection.execute(query.limit(chunk)).all()
            yield from (dict(zip(names, row, strict=True)) for row in rows)
            if len(rows) < chunk:
                return
            first_step = rows[-1].step + 1

    def list_log_losses(self, job_id: str) -> list[tuple[int, float]]:
        """List step and log-loss of the valid evaluations of a job, in order; those before the first step left out."""
        table = EVALUATIONS
        return [
            (step, loss)
            for own in self.list_ranges(job_id, "evaluation")
            for step, loss in self._connection.execute(
                select(table.c.step, table.c.log_loss)
                .where(*_is_within(table, job_id, own, 1), table.c.log_loss.is_not(None))
                .order_by(table.c.step)
            )
        ]

    def count_evaluations(self, job_id: str, after: int, until: int) -> tuple[int, int]:
        """Return the number of evaluations of all attempts of a job in steps (after, until], and the last step of all.

        An evaluation before the first step counts too if `after` is 0.
        """
        is_within = EVALUATIONS.c.step.between(after + 1 if after else 0, until)
        query = select(func.count().filter(is_within), func.coalesce(func.max(EVALUATIONS.c.step), 0))
        number, step = self._connection.execute(query.where(EVALUATIONS.c.job_id == job_id)).one()
        return number, step

    def measure_gsnr(self, job_id: str) -> int:
        """Return the number of characters of a job's last ratios by layer; 0 without any."""
        order = [column.desc() for column in ROLLUPS.primary_key if column.name != "job_id"]
        query = select(func.length(cast(ROLLUPS.c.gsnr_last, Text))).where(ROLLUPS.c.job_id == job_id)
        return self._connection.scalar(query.where(ROLLUPS.c.attempt >= 1).order_by(*order).limit(1)) or 0

    def measure_objects(self, job_id: str, names: Sequence[str]) -> int:
        """Return the number of characters of these objects in a job's evaluation, at most; 0 without any."""
        lengths = [func.max(func.length(cast(EVALUATIONS.c[name], Text))) for name in names]
        query = select(*lengths).where(EVALUATIONS.c.job_id == job_id, EVALUATIONS.c.attempt >= 1)
        return sum(length or 0 for length in self._connection.execute(query).one())

    def are_steps_removed(self, job_id: str) -> bool:
        """Whether the reports of steps of a job were removed, so that only the levels of its curves are left."""
        return bool(self._connection.scalar(_ARE_STEPS_REMOVED, {"job_id": job_id}))

    def _add(self, table: Table, job_id: str, attempt: int, reports: Iterable[StepReport | EvaluationReport]) -> None:
        """Store reports in one statement; of several ones of one step the last one counts."""
        names = _list_names(table)
        rows = {report.step: _make_row(report, names) for report in reports}
        if self._connection.dialect.name == "postgresql":
            values = {"job_id": job_id, "attempt": attempt, "rows": _dump(list(rows.values()))}
            self._connection.execute(_make_insert(table, is_postgresql=True), values)
            return
        for row in rows.values():
            row |= {"job_id": job_id, "attempt": attempt}
            row |= {name: _dump(row[name]) for name in _list_objects(table) if row[name] is not None}
        self._connection.execute(_make_insert(table, is_postgresql=False), list(rows.values()))


def _dump(value: Any) -> str:
    """Convert a value to JSON; numbers that are not finite become null."""
    return to_json(value, inf_nan_mode="null").decode()


def _is_within(table: Table, job_id: str, own: AttemptRange, first_step: int) -> list[ColumnElement[bool]]:
    """Return the conditions that a report belongs to a range, from `first_step` on."""
    columns = table.c
    return [
        columns.job_id == job_id,
        columns.attempt == own.attempt,
        columns.step >= first_step,
        columns.step <= own.last_step,
    ]


@cache
def _list_names(table: Table) -> list[str]:
    """List the columns that have the values of a report."""
    # Plain texts: the names of columns are of a kind that makes JSON slow.
    return [str(column.name) for column in table.c if column.name not in ("job_id", "attempt")]


@cache
def _list_objects(table: Table) -> list[str]:
    """List the columns that have JSON."""
    return [name for name in _list_names(table) if isinstance(table.c[name].type, JSON)]


def _make_row(report: StepReport | EvaluationReport, names: Sequence[str]) -> dict[str, Any]:
    """Make the row of a report, without its job and attempt."""
    values = report.__dict__
    return {name: _make_storable(values[name]) for name in names}


def _make_storable(value: Any) -> Any:
    if isinstance(value, float):
        if 1 / LARGEST_NUMBER < abs(value) < LARGEST_NUMBER:
            return value
        return 0.0 if abs(value) < 1 else None
    return int(value) if isinstance(value, bool) else value


@cache
def _make_insert(table: Table, *, is_postgresql: bool) -> TextClause:
    """Make the statement that stores rows: PostgreSQL takes all of them as one JSON document."""
    names = _list_names(table)
    columns = ", ".join((*_KEY[:2], *names))
    updated = ", ".join(f"{name} = excluded.{name}" for name in names if name not in _KEY)
    source = f"VALUES (:job_id, :attempt, {', '.join(f':{name}' for name in names)})"
    if is_postgresql:
        rows = f"json_populate_recordset(CAST(NULL AS {table.name}), CAST(:rows AS json))"
        source = f"SELECT :job_id, :attempt, {', '.join(names)} FROM {rows}"
    conflict = f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {updated}"
    return text(f"INSERT INTO {table.name} ({columns}) {source} {conflict}")


_JOBS = inspect(Job).local_table
_SET_PROGRESS = (
    update(_JOBS)  # pyright: ignore
    .where(Job.id == bindparam("chosen"))
    .values(progress=bindparam("progress"))
)
_SET_POSITION = text(
    f"INSERT INTO {StreamPosition.__tablename__} (attempt_id, rank, stream, acknowledged_seq) "
    "VALUES (:attempt_id, :rank, :stream, :seq) "
    "ON CONFLICT (attempt_id, rank, stream) DO UPDATE SET acknowledged_seq = excluded.acknowledged_seq"
)
_ARE_STEPS_REMOVED = text(
    f"SELECT NOT EXISTS (SELECT 1 FROM {STEPS.name} AS s WHERE s.job_id = :job_id AND s.attempt = f.attempt "
    f"AND s.step = f.first_step) FROM (SELECT attempt, first_step FROM {ROLLUPS.name} WHERE job_id = :job_id "
    "ORDER BY job_id, attempt, level, bucket, part LIMIT 1) AS f"
)
